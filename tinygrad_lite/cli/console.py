"""How a command talks to people: what it says, and how it ends when something goes wrong."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tinygrad_lite.cli.errors import DecodingError, OptionError, UserError

WINDOWS = sys.platform == "win32"
RESET = "\x1b[0m"  # ends a colour on a terminal
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but the tab and the end of a line
LONGEST = 2000  # characters of a sentence about a mistake; the names in a hostile file may have millions


def say(*words: Any) -> None:
    """Print for people, to stderr: stdout is for text that a model wrote, and for tables."""
    print(*(visible(str(word)) for word in words), file=sys.stderr, flush=True)


def visible(text: str) -> str:
    r"""A text with an escape for each control character.

    A terminal obeys them: it clears the screen, changes its title, in some programs even types. What is printed may
    hold names, characters or tokens that come from a stranger's file.

    >>> print(visible("one\n\x1b[2Jtwo"))
    one
    \x1b[2Jtwo
    """
    return CONTROL.sub(lambda control: ascii(control[0])[1:-1], text)


def shown(text: str) -> str:
    """What a model wrote, for stdout: as it is, but made visible where stdout is a terminal."""
    return visible(text) if sys.stdout.isatty() else text


def quoted(path: Path) -> str:
    """A path for a command that is shown to be copied.

    >>> print(quoted(Path("out")), quoted(Path("my runs")))
    out "my runs"
    """
    return f'"{path}"' if " " in str(path) else str(path)


def is_plain(text: str) -> bool:
    """Whether every shell takes a text between double quotes as it is, and can print it.

    >>> is_plain("Habe nun, ach"), is_plain("5 $")
    (True, False)
    """
    return text.isprintable() and not set(text) & set('"$`\\!%')


def wants_colour() -> bool:
    """Whether stdout is a terminal that knows colours, and the user has not asked for none (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    # The old console of Windows would print the codes themselves. Newer terminals there give themselves away.
    if WINDOWS and not {"WT_SESSION", "TERM", "TERM_PROGRAM", "ConEmuANSI"} & os.environ.keys():
        return False
    return sys.stdout.isatty()


def run_command(name: str, main: Callable[[list[str]], int]) -> NoReturn:
    """Call `main` with the command line and end the process with the status that it returns.

    What a user can mend becomes one sentence instead of a traceback. Status 2: the command line was wrong; 1: anything
    else that a user can mend; 130 and 141: what a shell expects after Ctrl-C, and when the reader of a pipe has gone.

    Args:
        name: of the command, put before the sentence.
    """
    give_missing_streams()
    # Whatever a model writes can be printed, on every terminal and into every pipe, and so can what is said about it.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sentence = str(error)
        say(f"{name}: {sentence[:LONGEST]}" + (" ..." if len(sentence) > LONGEST else ""))
        sys.exit(2 if isinstance(error, (OptionError, DecodingError)) else 1)
    except KeyboardInterrupt:
        say(f"\n{name}: stopped")
        sys.exit(130)
    except MemoryError:
        say(f"{name}: there is not enough memory for this: take a smaller model or less at once")
        sys.exit(1)
    except OSError as error:
        if reader_has_gone(error):
            # Python would flush stdout again at the end, and complain: let it write to nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        say(f"{name}: {error}")  # the disk is full, a file was taken away
        sys.exit(1)


def give_missing_streams() -> None:
    """Where the shell has closed stdin, stdout or stderr, take one that has nothing to read and keeps nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, stays open to the end


def reader_has_gone(error: OSError) -> bool:
    """Whether an error means that nobody reads what we write into a pipe.

    Windows may call that an invalid argument, but so it calls a forbidden file name, and then the error has that name.
    """
    on_windows = WINDOWS and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or on_windows
