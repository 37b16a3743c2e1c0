"""Texts with labels, for learning to classify: `reviews`, or anyone's table in a CSV file.

A table has one text and its label per row, or two texts that are judged together, such as two questions. Its first line
names the columns, of which `text` (or sentence, review, title, message) and `label` (or class, category, sentiment,
topic) are taken, or for a pair `text1`, `text2` (or sentence1, sentence2; premise, hypothesis; question1, question2)
and `label`. They are separated by commas or semicolons, where a text may be in quotation marks, or by tabs, where
it may not: between two tabs every character is part of the text.
"""

import csv
import hashlib
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from extra.corpora import reviews
from extra.corpora.parts import InParts, stratified
from extra.corpora.texts import RECIPES
from tinygrad_lite.errors import CorpusError, counted
from training.cli import console
from training.cli.files import lines_of, text_named
from training.cli.options import not_among
from training.corpora import fetch
from training.corpora.cleaning import normalise
from training.corpora.divided_pairs import grouped, key_of

TABLES = {"reviews": "8,530 sentences from reviews of films in English, half of them positive"}
PAIRS = (("text1", "text2"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"))
TEXTS = (*PAIRS, ("text",), ("sentence",), ("review",), ("title",), ("message",))
LABELS = ("label", "class", "category", "sentiment", "topic")
MAX_TABLE = 256 * 2**20  # bytes
MAX_ROWS = 1_000_000
MAX_HEADER = 10_000  # characters of the line that names the columns
MAX_LABELS = 100
MIN_ROWS = 10  # one each for validation and test
HELD_OUT = 0.1  # the shares of the rows for validation and for the test


@dataclass(frozen=True)
class LabelledTexts(InParts):
    """Texts, each with the number of its label; no text is in two parts. Between the texts of a pair there is a tab."""

    @property
    def are_pairs(self) -> bool:
        """Whether a label belongs to two texts."""
        return "\t" in self.train[0][0]

    @property
    def noun(self) -> str:
        """What has a label, in words."""
        return "pairs of texts" if self.are_pairs else "texts"

    @property
    def sha256(self) -> str:
        """The hash of all rows in the order of the parts: which data a number was measured on."""
        rows = [*self.train, None, *self.validation, None, *self.test, self.labels]
        return hashlib.sha256(repr(rows).encode("utf-8", "surrogatepass")).hexdigest()


def load_labelled(name: str, say: Callable[[str], None] = console.say) -> LabelledTexts:
    """Find texts with labels by name, or read a CSV file, and print their number, source and licence.

    Args:
        name: one of `TABLES`, or the path of a CSV file.
        say: takes each line meant for the user.
    Raises: CorpusError if there is no such file or it is not such a table, or if a named one cannot be fetched.
    """
    if Path(name).is_file() or Path(name).name != name or "." in name:
        found = read_table(name, say)
    elif name not in TABLES:
        instead = "`--table FILE.csv` takes a table of text and label"
        raise CorpusError(f"no texts with labels are called {not_among(name, TABLES)}, and {instead}")
    else:
        with fetch.advising(f"the data set {name}", "--table FILE.csv"):
            parts = reviews.labelled_sentences()
        recipe = RECIPES["imdb"]  # the same file
        found = LabelledTexts(name, *parts, labels=reviews.LABELS, source=recipe.source, licence=recipe.licence)
    found.announce(found.noun, [len(part) for part in (found.train, found.validation, found.test)], say)
    return found


def read_table(path: str, say: Callable[[str], None] = console.say) -> LabelledTexts:
    """Read a CSV file of texts and labels; a tenth of the rows each is for validation and for the test.

    The rows are shuffled, always in the same way, each label having the same share in all parts. A text, or a pair,
    that occurs again, ignoring capitals and white space, is left out. Rows with the same first text, ignoring final
    punctuation too, are in one part, as are those whose second text is it. Labels are numbered in alphabetical order.

    Raises: CorpusError, naming the file and the line, if it is missing, too large, not UTF-8 or not a CSV file; if it
        has no columns of text and label; or if it has an empty text, a single label, more than MAX_LABELS, or fewer
        than MIN_ROWS rows.
    """
    seen: dict[str, tuple[str, str]] = {}
    cells = _cells(path)
    for line, row in cells:
        *texts, label = words = [" ".join(cell.split()) for cell in row]
        if "" in words:
            what = (("text",) if len(texts) == 1 else ("first text", "second text")) + ("label",)
            empty = what[words.index("")]
            raise CorpusError(f"{path}, line {line}: the {empty} is empty: fill it in, or delete the row")
        text = "\t".join(texts)
        seen.setdefault(text.casefold(), (text, label))
    every = list(seen.values())
    counts = Counter(label for _, label in every)
    if len(every) < MIN_ROWS:
        raise CorpusError(f"{path} has {counted(len(every), 'different text')}: at least {MIN_ROWS} are needed")
    keys = [[*map(key_of, text.split("\t"))] for text, _ in every]
    firsts = {first for first, *_ in keys}
    groups = [*grouped([(first, *firsts.intersection(second)) for first, *second in keys]).values()]
    if len(groups) < 3:
        different = counted(len(groups), "different first text")
        raise CorpusError(f"{path} has {different}: each of three parts needs its own")
    if len(counts) < 2:
        raise CorpusError(f"{path} has only the label {every[0][1]!r}: there is nothing to tell apart")
    if len(counts) > MAX_LABELS:
        question = "is it the right column of labels?"
        raise CorpusError(f"{path} has {len(counts):,} different labels, more than {MAX_LABELS}: {question}")
    if len(cells) > len(every):
        say(f"{path}: left out: {counted(len(cells) - len(every), 'row')} whose text occurs earlier")
    if shared := sum(len(rows) for rows in groups if len(rows) > 1):
        say(f"{path}: {counted(shared, 'row')} with a text of other rows, each kept in one part with those")
    if rare := [label for label, count in counts.items() if count < MIN_ROWS]:
        others = f" and {len(rare) - 1} others" if len(rare) > 1 else ""
        say(f"warning: {path} has fewer than {MIN_ROWS} texts with the label {rare[0]!r}{others}")
    labels = tuple(sorted(counts))
    numbers = {label: number for number, label in enumerate(labels)}
    held_out = max(1, round(HELD_OUT * len(every)))
    sizes = (len(every) - 2 * held_out, held_out, held_out)
    rows = [(label, text.encode("utf-8", "surrogatepass")) for text, label in every]
    parts = stratified(rows, sizes, groups)
    texts = ([(every[row][0], numbers[every[row][1]]) for row in part] for part in parts)
    name = Path(path).name  # without folders, which are private
    return LabelledTexts(Path(path).stem, *texts, labels=labels, source=name, licence="that of your file")


def _cells(path: str) -> list[tuple[int, list[str]]]:
    """The number of each line, and its text or two texts, and its label."""
    text = normalise("\n".join(lines_of(text_named(path, MAX_TABLE))))
    first = text.lstrip(" \n").partition("\n")[0]
    if not first:
        raise CorpusError(f"{path} is empty")
    for separator in "\t,;":
        names = next(csv.reader([first[:MAX_HEADER]], delimiter=separator))
        if columns := _named(names):
            break
    else:
        raise CorpusError(
            f"{path}: its first line must name the columns with the texts and their labels, as in `text,label`, or "
            f"`text1,text2,label` for pairs of texts, but it is {first[:100]!r}"
        )
    quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL  # between tabs, quotation marks are text
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, quoting=quoting)
    rows, line = [], 0  # a row: the numbers of its first and last line, and its cells
    try:
        for cells in console.watched(reader, console.visible(path), text.count("\n")):
            if any(cell.strip() for cell in cells):
                rows.append((line + 1, reader.line_num, cells))
            if len(rows) > MAX_ROWS:
                raise CorpusError(f"{path} has more than {MAX_ROWS:,} rows: use a part of it")
            line = reader.line_num
    except csv.Error as error:
        raise CorpusError(f"{path}, line {line + 1}: not a CSV file ({error})") from None
    labels = {cells[columns[-1]].strip() for _, _, cells in rows[1:] if len(cells) == len(names)}
    lines = text.split("\n")
    for first, last, cells in rows:
        if len(cells) != len(names):
            found = counted(len(cells), "column")
            raise CorpusError(f"{path}, line {first}: {found} instead of {len(names)}: are quotes missing?")
        cut = [line.split(separator) for line in lines[first - 1 : last]]
        whole = [row for row in cut if len(row) == len(names) and row[columns[-1]].strip(' "') in labels]
        if last > first and len(whole) > 1:
            problem = f"a quotation mark begins a text that takes in the rows up to line {last}"
            advice = "write it twice inside quoted text, or save the table with tabs, as .tsv"
            raise CorpusError(f"{path}, line {first}: {problem}: {advice}")
    return [(first, [cells[column] for column in columns]) for first, _, cells in rows[1:]]


def _named(names: list[str]) -> list[int] | None:
    """The places of the text, or of both texts of a pair, and of the label; None if they are not named."""
    names = [name.strip().lower() for name in names]
    texts = next(([*map(names.index, columns)] for columns in TEXTS if {*columns} <= {*names}), [])
    label = [names.index(name) for name in LABELS if name in names][:1]
    if len(names) == 2 and len(texts) + len(label) == 1:  # of two columns, one name is enough
        texts, label = texts or [1 - label[0]], label or [1 - texts[0]]
    return texts + label if texts and label else None
