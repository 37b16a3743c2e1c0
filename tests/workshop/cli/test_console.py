"""How a command ends: its exit status and its message."""

import errno
import io
import os
import subprocess
import sys

import pytest

from tinygrad_lite.errors import CheckpointError, DecodingError, OptionError
from workshop.cli import console
from workshop.cli.console import run_command, watched
from workshop.tokenizers import base, learn

ERRORS = [
    (OptionError("--x 3: too large"), 2, "make: --x 3: too large\n"),
    (DecodingError("top_p 2: too large"), 2, "make: top_p 2: too large\n"),
    (CheckpointError("no such file"), 1, "make: no such file\n"),
    (MemoryError(), 1, "make: out of memory: use a smaller model or a smaller batch\n"),
    (OSError("the disk is full"), 1, "make: the disk is full\n"),
    (KeyboardInterrupt(), 130, "\nmake: stopped\n"),
]


@pytest.mark.parametrize(("error", "status", "said"), ERRORS)
def test_errors_of_the_user_give_one_sentence_and_a_status(error, status, said, capsys):
    def main(argv):
        raise error

    with pytest.raises(SystemExit) as stopped:
        run_command("make", main)
    assert stopped.value.code == status
    assert capsys.readouterr() == ("", said)


def test_main_gets_the_command_line_and_returns_the_exit_status(monkeypatch):
    monkeypatch.setattr("sys.argv", ["make", "a", "b"])
    with pytest.raises(SystemExit) as stopped:
        run_command("make", lambda argv: 7 if argv == ["a", "b"] else 8)
    assert stopped.value.code == 7


def test_a_mistake_in_the_code_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command("make", lambda argv: 1 // 0)


def test_a_closed_pipe_ends_the_command_silently():
    code = (
        "from workshop.cli.console import run_command\n"
        "def main(argv):\n"
        "    while True:\n"
        "        print('line' * 1000, flush=True)\n"
        "run_command('make', main)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_closed_pipe_on_windows_is_an_invalid_argument():
    """A forbidden file name is one too, but has a path."""
    code = (
        "import errno, sys\n"
        "from workshop.cli import console\n"
        "console.WINDOWS = sys.argv[1] == 'windows'\n"
        "def main(argv):\n"
        "    raise OSError(errno.EINVAL, 'Invalid argument', *argv[1:])\n"
        "console.run_command('make', main)\n"
    )
    said = f"make: [Errno {errno.EINVAL}] Invalid argument"
    for words, status, err in ((["windows"], 141, ""), (["windows", "a?b"], 1, f"{said}: 'a?b'"), (["linux"], 1, said)):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
        assert (done.returncode, done.stderr.decode("utf-8").strip()) == (status, err)


def test_messages_are_utf8_in_a_pipe():
    said = r"s\xfc\xdf \u2603 \udcfc"  # the last stands for a byte in a file's name
    code = f"from workshop.cli.console import run_command, say\nrun_command('make', lambda _: say('{said}'))"
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    assert done.stderr.decode("utf-8").strip() == r"süß ☃ \udcfc"


def test_what_takes_long_is_shown_as_a_bar_or_said_in_a_line(monkeypatch):
    for limit, is_terminal, said in ((-1, True, "\rcounting:"), (-1, False, "counting ...\n"), (60, True, "")):
        monkeypatch.setattr(console, "LONG", limit)
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        sys.stderr.isatty = lambda is_terminal=is_terminal: is_terminal
        assert [*watched(iter("abc"), "counting", 3)] == ["a", "b", "c"]
        assert sys.stderr.getvalue()[:10] == said[:10]


@pytest.mark.parametrize("kind", ["bpe", "bpe-w", "wordpiece"])
def test_learning_merges_and_encoding_a_long_text_are_watched(kind, capsys, monkeypatch):
    text = "Es irrt der Mensch, solang er strebt. " * 3
    expected = learn(kind, text, 300).encode(text)
    monkeypatch.setattr(console, "LONG", -1)
    monkeypatch.setattr(base, "WATCHED_WORDS", 10)
    assert learn(kind, text, 300).encode(text) == expected
    assert capsys.readouterr().err == "learning merges ...\ntokenizing ...\n"
