"""The prompt of sample.py, for every family of models."""

from __future__ import annotations

import reprlib
import sys
from typing import Any

from tinygrad_lite.errors import OptionError
from workshop.cli.console import say
from workshop.cli.files import read_file


def read_prompt(start: str) -> str:
    """The text of the prompt, from the argument, a file, or stdin."""
    try:
        if start == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        if start.startswith("FILE:"):
            return read_file(start.removeprefix("FILE:")).decode("utf-8")
    except OSError as error:
        raise OptionError(f"--start {start!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        where = "stdin" if start == "-" else repr(start)
        raise OptionError(f"--start: {where} is not UTF-8 text (byte {error.start})") from None
    return start


def warn_of_unknown(tokenizer: Any, text: str) -> None:
    """Warn about characters, or words, that are not in the vocabulary."""
    if unknown := tokenizer.unknown(text):
        shown = " ".join(reprlib.repr(piece) for piece in sorted(unknown)[:20]) + (" ..." if len(unknown) > 20 else "")
        say(f"warning: the model never saw {shown}; it reads them as unknown")
