"""The prompt of sample.py, for every family of models."""

import reprlib
import sys
from collections.abc import Iterable
from typing import Any

from tinygrad_lite.errors import counted
from training.cli.console import say
from training.cli.files import decode_utf8, lines_of, text_named


def read_prompt(start: str) -> str:
    """The text of the prompt, from the argument, a file, or stdin."""
    if start.startswith("FILE:"):
        return text_named(start.removeprefix("FILE:"))
    return decode_utf8(sys.stdin.buffer.read(), "--start: stdin") if start == "-" else start


def prompt_lines(text: str) -> list[str]:
    """The lines of a prompt: at least one, which may be empty."""
    return lines_of(text) or [""]


def warn_of_cut(lengths: Iterable[int], room: int, part: str = "first", unit: str = "line") -> None:
    """Say which of the inputs with these lengths in tokens a model does not read whole."""
    if longer := [length for length in lengths if length > room]:
        numbers = f"longer {unit}s: {len(longer):,}, of up to {counted(max(longer), 'token')}"
        say(f"warning: of a {unit}, only the {part} {counted(room, 'token')} can be read; {numbers}")


def warn_of_unknown(tokenizer: Any, text: str) -> None:
    """Warn about characters, or words, that are not in the vocabulary."""
    if unknown := tokenizer.unknown(text):
        shown = " ".join(reprlib.repr(piece) for piece in sorted(unknown)[:20]) + (" ..." if len(unknown) > 20 else "")
        say(f"warning: the model never saw {shown}; it reads them as unknown")
