"""Write English sentences with their German and their French translations, to compare two languages on the same text.

    python -m benchmarks.same_originals out/originals
    python -m benchmarks.experiments languages

The sentences are those of Debian's package descriptions that have both translations. `out/originals` gets three files
to learn from, line by line, and three that are held out, the last thousand: `en`, `de`, `fr` and `val.en` and so on.
The order is that of a hash, so that neighbours are not about the same package.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tinygrad_lite.errors import counted
from workshop.cli.command_line import read_command
from workshop.cli.console import run_command, say
from workshop.corpora.divided_pairs import key_of, write_lines
from workshop.corpora.fetch import sha256
from workshop.corpora.pairs import load_parallel

HELD_OUT = 1000


@dataclass
class OriginalsOptions:
    """It has none."""


def main(argv: list[str]) -> int:
    """Write the six files."""
    about = __doc__.split("\n")[0]
    _, (folder, *_) = read_command(
        OriginalsOptions, argv, "python -m benchmarks.same_originals", about, "FOLDER", "out/originals"
    )
    rows = in_three_languages(load_parallel("debian-descriptions").pairs, load_parallel("debian-descriptions-fr").pairs)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for part, chosen in (("", rows[:-HELD_OUT]), ("val.", rows[-HELD_OUT:])):
        for language, sentences in zip(("en", "de", "fr"), zip(*chosen, strict=True), strict=True):
            write_lines(Path(folder) / f"{part}{language}", list(sentences))
    say(f"wrote {counted(len(rows) - HELD_OUT, 'sentence')} to learn from and {HELD_OUT:,} held out into {folder}")
    return 0


def in_three_languages(german: list[tuple[str, str]], french: list[tuple[str, str]]) -> list[tuple[str, str, str]]:
    """English, German, French: the first translations of each English sentence that has both, in the order of a hash.

    A sentence whose wording in one of the languages occurred before, ignoring case and spaces, is left out.

    >>> in_three_languages([("ja", "yes"), ("doch", "yes"), ("nein", "no")], [("oui", "yes")])
    [('yes', 'ja', 'oui')]
    """
    of_german, of_french = ({english: other for other, english in reversed(pairs)} for pairs in (german, french))
    rows, seen = [], [set(), set(), set()]
    for english in sorted(of_german.keys() & of_french.keys(), key=sha256):
        row = english, of_german[english], of_french[english]
        keys = [key_of(sentence) for sentence in row]
        if not any(key in known for key, known in zip(keys, seen, strict=True)):
            rows.append(row)
        for key, known in zip(keys, seen, strict=True):
            known.add(key)
    return rows


if __name__ == "__main__":
    run_command("benchmarks", main)
