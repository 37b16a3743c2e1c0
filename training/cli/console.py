"""What surrounds a command: its messages for the user, its exit after an error, and the programs that it starts."""

import errno
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from signal import SIG_IGN, SIGINT, default_int_handler, getsignal, signal
from typing import Any, NoReturn

from tinygrad_lite.errors import DecodingError, OptionError, UserError

WINDOWS = sys.platform == "win32"
RESET = "\x1b[0m"  # ends a colour on a terminal
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all except the tab and the line feed
LONG = 1.5  # seconds; what takes longer is shown
LONGEST = 2000  # characters of an error message; names in a hostile file may have millions


def say(*words: Any) -> None:
    """Print a message to stderr: stdout is for text that a model generated, and for tables."""
    try:
        print(*(visible(str(word)) for word in words), file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno != errno.EIO:  # which means that the terminal was closed
            raise


def visible(text: str) -> str:
    r"""The text with every control character escaped.

    A terminal executes them: they can clear the screen, change its title, and in some programs even type input. Names,
    characters and tokens that are printed may come from an untrusted file.

    >>> print(visible("one\n\x1b[2Jtwo"))
    one
    \x1b[2Jtwo
    """
    return CONTROL.sub(lambda control: ascii(control[0])[1:-1], text)


def show(*words: Any, end: str = "\n") -> None:
    """Print a line of a table or a list to stdout; names in it may come from anyone, so it is `visible`."""
    print(*(visible(str(word)) for word in words), end=end, flush=True)


def shown(text: str) -> str:
    """Generated text for stdout: unchanged, but with control characters escaped if stdout is a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def write(text: str, paint: Callable[[str], str] = shown) -> None:
    """Print text immediately."""
    sys.stdout.write(paint(text))
    sys.stdout.flush()


def quoted(value: Path | str) -> str:
    """A path, or a text, as one word of a command that the user may copy: a shell reads it as it is.

    A path that begins with a dash gets a ./ in front, so that no program takes it for an option.

    >>> print(quoted(Path("out")), quoted(Path("my runs")), quoted(Path("-n")), quoted("$(date)"))
    out 'my runs' ./-n '$(date)'
    """
    text = f"./{value}" if isinstance(value, Path) and str(value).startswith("-") else str(value)
    return f'"{text}"' if WINDOWS and quote(text) != text else quote(text)  # Windows allows no " in a name


def with_value(option: str, value: Path | str) -> str:
    """An option with its value in a command that the user may copy; a value that looks like an option is joined to it.

    >>> print(with_value("start", "it is"), with_value("start", "--resume"))
    --start 'it is' --start=--resume
    """
    return f"--{option}{'=' if str(value).startswith('--') else ' '}{quoted(value)}"


def watched(items: Iterable[Any], doing: str, total: int) -> Iterator[Any]:
    """The items. If they take long, a bar shows how many are done, or a line says it where there is no terminal."""
    from tqdm import tqdm  # which takes 17 ms to import

    bar = tqdm(items, doing, total, leave=False, file=sys.stderr, disable=None, dynamic_ncols=True, delay=LONG)
    bar.bar_format, late = "{l_bar}{bar}| {remaining}", time.monotonic() + LONG
    for item in bar:
        yield item
        if bar.disable and time.monotonic() > late:
            say(f"{doing} ...")
            late = math.inf


def is_plain(text: str) -> bool:
    """Whether a text is printable, and literal between double quotes in every shell.

    >>> is_plain("Habe nun, ach"), is_plain("5 $")
    (True, False)
    """
    return text.isprintable() and not set(text) & set('"$`\\!%')


def wants_colour() -> bool:
    """Whether stdout is a terminal with colours, and the user has not switched them off (no-color.org)."""
    is_off = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    # The old console of Windows prints the codes themselves. Newer terminals there set one of these variables.
    is_old = WINDOWS and not {"WT_SESSION", "TERM", "TERM_PROGRAM", "ConEmuANSI"} & os.environ.keys()
    return not is_off and not is_old and sys.stdout.isatty()


def run_command(name: str, main: Callable[[list[str]], int], about: str | None = None) -> NoReturn:
    """Call `main` with the command line and exit with the status that it returns.

    An error that the user can fix becomes one sentence instead of a traceback. Status 2: the command line was wrong;
    1: any other such error; 130 and 141: what a shell expects after Ctrl-C, and after the reader of a pipe has exited.

    Args:
        name: of the command, printed before the sentence.
        about: what --help prints, for a program that has no options of its own: its docstring.
    """
    if getsignal(SIGINT) != SIG_IGN:
        signal(SIGINT, default_int_handler)  # instead of that of doorstep.py
    give_missing_streams()
    # So that any generated text, and any message, can be printed on every terminal and into every pipe.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    status = 1
    try:
        if about and sys.argv[1:] in (["--help"], ["-h"]):
            show(about.strip())
            status = 0
        else:
            status = main(sys.argv[1:])
        sys.stdout.flush()  # here, where an error can still be told
    except UserError as error:
        say(f"{name}: {str(error)[:LONGEST]}".replace("\n", "\\n") + " ..." * (len(str(error)) > LONGEST))
        status = 2 if isinstance(error, (OptionError, DecodingError)) else 1
    except KeyboardInterrupt as stop:
        say(f"\n{name}: stopped {stop}".rstrip())
        status = 130
    except ModuleNotFoundError as error:
        if error.name and find_spec(error.name.split(".")[0]):
            raise  # a wrong import in code that is being changed
        say(f"{name}: the package {error.name} is not installed")
    except MemoryError:
        say(f"{name}: out of memory: use a smaller model or a smaller batch")
    except OSError as error:
        status = 141 if reader_has_gone(error) else 1
        if status == 1:
            say(f"{name}: {error}")  # such as a full disk, or a file that was removed
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # at exit, Python would try again, complain, and change the status
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


def give_missing_streams() -> None:
    """Replace each of stdin, stdout and stderr that the shell has closed by the null device."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, stays open to the end


def reader_has_gone(error: OSError) -> bool:
    """Whether an error means that the reader of our pipe has exited.

    Windows may report that as an invalid argument. It reports a forbidden file name in the same way, but then the
    error has a file name.
    """
    return isinstance(error, BrokenPipeError) or (WINDOWS and error.errno == errno.EINVAL and error.filename is None)


# --- programs that it starts -----------------------------------------------------------------------------------


def run_apart(command: list[str], folder: str | Path, run: Callable = subprocess.run, **settings: Any) -> Any:
    """Run a program that no file in the user's current folder, or in PYTHONPATH, can take part in.

    It runs in a folder of its own, and without the variables that change what Python does; all others, such as those
    that name an index, a proxy or certificates, stay.

    Args:
        command: `python` as its first word is this Python, isolated (-I).
        run: replaces subprocess.run in tests.
        settings: of subprocess.run.
    """
    if command[0] == "python":
        command = [sys.executable, "-I", *command[1:]]
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    stdin = None if "input" in settings else subprocess.DEVNULL
    settings = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return run(command, cwd=folder, env=others | {"LC_ALL": "C"}, **settings)  # messages in English


@contextmanager
def safe_path() -> Iterator[None]:
    """Within this context a new Python imports nothing from the current folder or PYTHONPATH when it starts.

    That is for workers of multiprocessing, which inherit the environment, and then get this process's sys.path.
    """
    before = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("PYTHON")}
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        del os.environ["PYTHONSAFEPATH"]
        os.environ.update(before)
