"""The command line of pictures: `python -m extra.studies.draw WHAT ... --out FILE`.

Each kind of picture has its own options, a dataclass, and a function that makes a `Picture`. The file that a picture is
written to decides its form: .svg, .png and .pdf are images, .csv and .npz the numbers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from extra.plots.figure import METADATA, Picture, check_file, write
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.command_line import read_command
from training.cli.console import say, show
from training.cli.options import nearest

CHECKPOINT = "a checkpoint, a run's folder, or, for a GPT, a folder in Hugging Face's layout or smollm2"


@dataclass
class DrawOptions:
    """The option of all pictures."""

    out: list[str] = option(
        [],
        "files to write: the picture as .svg, .png or .pdf, its numbers as .csv (tables) or .npz (arrays)",
        is_path=True,
    )


@dataclass(frozen=True)
class Kind:
    """A kind of picture.

    Attributes:
        about: what it shows, for --help.
        make: makes the picture from what is named on the command line, with the options.
        options: the dataclass of its options.
        example: what may be named on the command line; empty if nothing need be.
        named: what that is called, with ... if there may be more.
        about_named: what it is.
    """

    about: str
    make: Callable[[Sequence[str], Any], Picture]
    options: type[DrawOptions]
    example: str = ""
    named: str = "CHECKPOINT"
    about_named: str = CHECKPOINT


def draw(prog: str, kinds: Mapping[str, Kind], argv: Sequence[str]) -> int:
    """Run the command line and return the exit status.

    Args:
        prog: the command, such as python -m extra.studies.draw.
        kinds: the pictures by name.
    Raises: UserError with one sentence if a picture cannot be made.
    """
    what, *rest = argv or ["--help"]
    if what in ("-h", "--help"):
        show(overview(prog, kinds))
        return 0
    if what not in kinds:
        near = nearest(what, kinds)
        hint = f"did you mean {near}? " if near else ""
        raise OptionError(f"there is no picture {what}: {hint}There are {', '.join(kinds)}")
    kind = kinds[what]
    options, names = read_command(
        kind.options,
        rest,
        f"{prog} {what}",
        f"Draw {kind.about}.",
        kind.named,
        kind.example,
        about_positional=kind.about_named,
        common=("out",),
    )
    for name in options.out:
        check_file(name, "--out", ".csv", ".npz")
    with np.errstate(all="ignore"):  # numbers that are not finite are refused when they are drawn
        picture = kind.make(names, options)
    if picture.text:
        show(picture.text)
    for path in map(Path, options.out or ([] if picture.text else [picture.default or f"{what}.svg"])):
        write(picture, path)
        say(f"wrote {path}")
    return 0


def overview(prog: str, kinds: Mapping[str, Kind]) -> str:
    """The page of --help that lists the pictures."""
    lines = [f"usage: {prog} WHAT ... --out FILE", "", "The pictures, each with its own --help:"]
    lines += [f"  {name:<12} {kind.about}" for name, kind in kinds.items()]
    files = ", ".join(METADATA)
    lines += ["", f"FILE ends with {files} for the picture, .csv or .npz for the numbers in it; there may be several."]
    return "\n".join(lines)
