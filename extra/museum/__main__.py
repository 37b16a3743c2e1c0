"""A museum of silent bugs: faults that public projects had, planted into this code, next to the code without them.

    python -m extra.museum           the exhibits, by what one sees
    python -m extra.museum 17        one of them: both curves or samples, a question, hints, and the answer

If stdin is not a terminal, nobody is asked, and all is printed. docs/museum.md says how to add an exhibit.
"""

import itertools
import sys
import textwrap
from contextlib import nullcontext

from threadpoolctl import threadpool_limits

from extra.museum import scenes
from extra.museum.exhibits import EXHIBITS, Exhibit
from extra.studies.program import NoOptions, program
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, show
from training.log import curve

COLUMNS = 38  # of each side


def shown(exhibit: Exhibit) -> list[str]:
    """The scene without the fault on the left, and with it on the right; curves have one scale."""
    numbers, texts = [], []
    for fault in (nullcontext(), exhibit.planted()):
        with fault, threadpool_limits(1):  # for matrices this small, several threads are slower
            seen, lines = getattr(scenes, exhibit.scene)(**exhibit.settings)
        numbers += seen
        texts.append([part for line in lines for part in textwrap.wrap(line, COLUMNS - 1)])
    both = curve(dict(enumerate(numbers, 1)), len(numbers), rows=6, columns=2 * COLUMNS) if numbers else []
    sides = [("without the fault", "with it"), *((line[:COLUMNS], line[COLUMNS:]) for line in both)]
    sides += itertools.zip_longest(*texts, fillvalue="")
    return [f"{left:{COLUMNS}}│{right}".rstrip() for left, right in sides]


@program("extra.museum", NoOptions, "N", about_positional="number of an exhibit (default: list them)")
def main(_: NoOptions, number: str = "") -> None:
    """Show a silent bug next to the code without it, ask what is wrong, and explain it."""
    if not number:
        show("\n".join(f"{place:>3}  {exhibit.symptom}" for place, exhibit in enumerate(EXHIBITS, start=1)))
        return
    if number not in map(str, range(1, len(EXHIBITS) + 1)):
        raise OptionError(f"{number} is no exhibit: they have the numbers 1 to {len(EXHIBITS)}")
    exhibit = EXHIBITS[int(number) - 1]
    show("\n".join([f"{exhibit.symptom}.", *shown(exhibit), exhibit.question]))
    for line in (*exhibit.hints, f"{exhibit.title}. {exhibit.answer}"):
        if sys.stdin.isatty():
            show("[Enter]", end=" ")
            sys.stdin.readline()
        show(textwrap.fill(line, 100))
    show("\n".join([f"Planted in {exhibit.function}", *exhibit.threads, *exhibit.tests]))


if __name__ == "__main__":
    run_command("extra.museum", main)
