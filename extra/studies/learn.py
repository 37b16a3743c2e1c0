"""Write a page in which a small GPT learns a text while you watch: one file, which needs no network.

    python -m extra.studies.learn                                the page learn.html
    python -m extra.studies.learn lecture.html --text my.txt     another file, and your own text to begin with

Open it in any browser. Its JavaScript is nano.py again, and trains in the page; extra/explorer/learning.py says what
it shows.
"""

from dataclasses import dataclass
from pathlib import Path

from extra.explorer.learning import page
from extra.plots.figure import write_or_refuse
from extra.studies.program import program
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, say


@dataclass
class LearnOptions:
    """The option of the page."""

    text: str = option("", "file to learn first; a text in UTF-8 (default: Goethe's Erlkönig)", is_path=True)


@program("extra.studies.learn", LearnOptions, "PAGE", about_positional="file to write (default: learn.html)")
def main(options: LearnOptions, name: str = "learn.html") -> None:
    """Write a page in which a small GPT learns a text."""
    if Path(name).suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"{name}: the page to write is an .html; a text to learn is named by --text")
    write_or_refuse(name, page(options.text))
    say(f"wrote {name}; open it in a browser")


if __name__ == "__main__":
    run_command("extra.studies.learn", main)
