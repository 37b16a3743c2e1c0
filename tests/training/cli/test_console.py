"""How a command ends, what it prints for copying, and the programs that it starts."""

import errno
import importlib
import os
import shutil
import subprocess
import sys
from multiprocessing import get_context, resource_tracker
from pathlib import Path

import pytest

from tests.tiny_runs import finish
from text.tokenizers import base
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.errors import CheckpointError, DecodingError, OptionError
from training.cli import console
from training.cli.console import quoted, run_apart, run_command, show, visible
from training.processes.workers import starting

ERRORS = [
    (OptionError("--x 3: too large"), 2, "make: --x 3: too large\n"),
    (DecodingError("top_p 2: too large"), 2, "make: top_p 2: too large\n"),
    (CheckpointError("no file a\nb"), 1, "make: no file a\\nb\n"),
    (MemoryError(), 1, "make: out of memory: use a smaller model or a smaller batch\n"),
    (OSError("the disk is full"), 1, "make: the disk is full\n"),
    (ModuleNotFoundError(name="sklearn"), 1, "make: the package sklearn is not installed\n"),
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


def test_a_program_without_options_prints_its_docstring(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["make", "--help"])
    with pytest.raises(SystemExit) as stopped:
        run_command("make", lambda argv: 7, "\nMakes it.\n\n    make FILE\n")
    assert (stopped.value.code, *capsys.readouterr()) == (0, "Makes it.\n\n    make FILE\n", "")


def test_a_mistake_in_the_code_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command("make", lambda argv: 1 // 0)
    with pytest.raises(ModuleNotFoundError):  # a wrong import, not a package that is missing
        run_command("make", lambda argv: importlib.import_module("training.nothing"))


def started(line, **settings):
    """A command of this line in another process."""
    code = f"from training.cli import console\ndef main(argv):\n    {line}\nconsole.run_command('make', main)"
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.Popen([sys.executable, "-c", code], **settings)


def test_a_closed_pipe_ends_the_command_silently():
    process = started("while True: print('line' * 1000, flush=True)")
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_what_cannot_be_written_is_one_sentence_even_at_the_end():
    with open("/dev/full", "wb") as full:
        ended = finish(started("print('line')", stdout=full))
    assert ended == (1, "", "make: [Errno 28] No space left on device\n")


def test_a_closed_pipe_on_windows_is_an_invalid_argument(monkeypatch):
    """A forbidden file name is one too, but has a path."""
    for is_windows, path, expected in ((True, None, True), (True, "a?b", False), (False, None, False)):
        monkeypatch.setattr(console, "WINDOWS", is_windows)
        assert console.reader_has_gone(OSError(errno.EINVAL, "Invalid argument", path)) is expected


def test_messages_are_utf8_in_a_pipe():
    said = r"s\xfc\xdf \u2603 \udcfc"  # the last stands for a byte in a file's name
    process = started(f"console.say('{said}')", env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"})
    assert finish(process) == (0, "", "süß ☃ \\udcfc\n")


def test_learning_merges_and_encoding_a_long_text_are_watched(capsys, monkeypatch):
    text = "Es irrt der Mensch, solang er strebt. " * 3
    expected = BPETokenizer.train(text, 300).encode(text)
    monkeypatch.setattr(console, "LONG", -1)
    monkeypatch.setattr(base, "WATCHED_WORDS", 10)
    assert BPETokenizer.train(text, 300).encode(text) == expected
    assert capsys.readouterr().err == "learning merges ...\ntokenizing ...\n"


# --- commands to copy, and names from anyone ----------------------------------------------------------------------


NAMES = ["out", "my run", " a", "it's", 'say "a"', "$(touch harm)", "`touch harm`", "${HOME}", "a;touch harm", "a>harm"]
NAMES += ["-n", "--help", "-", "Übung", "e\u0301", "a\nb", "!!", "*", "[a]", "~", "#a", "\\", "%s", "a\tb", "{a,b}"]
NAMES += ["=a", "''", "$'a'", "a'; touch harm; '"]


@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX")
@pytest.mark.parametrize("kind", [str, Path])
def test_a_shell_reads_a_printed_name_as_it_is(kind, tmp_path):
    names = [*map(kind, NAMES), *([""] if kind is str else [])]
    lines = "".join(f"printf '%s\\0' {quoted(name)}\n" for name in names)
    for shell in filter(shutil.which, ("sh", "bash")):
        done = subprocess.run([shell], input=lines.encode(), capture_output=True, cwd=tmp_path, check=True)
        read = done.stdout.decode().split("\0")[:-1]
        assert [word.removeprefix("./") if kind is Path else word for word in read] == [str(name) for name in names]
        assert not done.stderr
        assert kind is not Path or not [word for word in read if word.startswith("-")]
    assert os.listdir(tmp_path) == []


def test_names_from_anyone_do_not_reach_a_terminal_as_commands(capsys):
    show("  1.0 %", "cat\x1b[2J\x9b2J\r", end="!\n")
    assert capsys.readouterr().out == "  1.0 % cat\\x1b[2J\\x9b2J\\r!\n" == visible("  1.0 % cat\x1b[2J\x9b2J\r!\n")


# --- programs that are started -----------------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """The current folder, full of files that a program would run; their names are in the list once they do."""
    said = tmp_path / "said"
    said.touch()
    folder = tmp_path / "trap"
    folder.mkdir()
    for name in "jinja2 multiprocessing json sitecustomize usercustomize pickle random signal os site startup".split():
        (folder / f"{name}.py").write_text(f"open({str(said)!r}, 'a').write('{name} ')", encoding="utf-8")
    (folder / "date").write_text(f"#!/bin/sh\necho date >> {quoted(said)}\n", encoding="utf-8")
    (folder / "date").chmod(0o755)
    monkeypatch.chdir(folder)
    for name, value in {"PATH": "", "STARTUP": f"{folder}/startup.py", "INSPECT": "1", "HOME": ""}.items():
        monkeypatch.setenv(f"PYTHON{name}", str(folder) if name == "PATH" else value)
    monkeypatch.setenv("PATH", os.pathsep + os.environ["PATH"])  # an empty part is the current folder
    return said


def work():
    resource_tracker._resource_tracker._stop()
    with starting():
        process = get_context("spawn").Process(target=os.getpid)
        process.start()
    process.join()
    assert process.exitcode == 0


def others():
    folder = Path(os.environ["PYTHONSTARTUP"]).parents[1]
    assert run_apart(["date"], folder).returncode == 0
    shown = run_apart(["python", "-c", "import json, os; print(os.environ['HTTPS_PROXY']); print(os.getcwd())"], folder)
    assert (shown.stdout.decode().splitlines(), shown.stderr) == (["http://localhost:9", str(folder)], b"")


@pytest.mark.skipif(os.name != "posix", reason="programs of POSIX")
@pytest.mark.parametrize("start", [work, others])
def test_what_is_started_runs_nothing_of_the_current_folder(start, trap, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://localhost:9")
    before = dict(os.environ)
    start()
    assert trap.read_text(encoding="utf-8") == ""
    assert {name: value for name, value in os.environ.items() if name.startswith("PYTHON")} == {
        name: value for name, value in before.items() if name.startswith("PYTHON")
    }
