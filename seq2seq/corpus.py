"""Sentence pairs from files or made up, and a fair split: nothing that is held out was seen in any language."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seq2seq.options import Seq2SeqOptions
from seq2seq.toys import toy_pairs
from tinygrad_lite.errors import CorpusError

SentencePair = tuple[str, str]


@dataclass
class PairCorpus:
    """Sentence pairs to learn from and held-out ones; `sha256` is the hash of both, as lines of text."""

    name: str
    train: list[SentencePair]
    held_out: list[SentencePair]
    sha256: str


def load_pairs(options: Seq2SeqOptions) -> PairCorpus:
    """The pairs that the options ask for, in the direction that they ask for.

    Raises: CorpusError if a file cannot be read, if sides do not fit together, or if there is too little.
    """
    if options.pairs:
        name, pairs = Path(options.pairs).name, read_table(Path(options.pairs))
    elif options.src:
        name, pairs = Path(options.src).name, read_two(Path(options.src), Path(options.tgt))
    else:
        name, pairs = options.dataset, toy_pairs(options.dataset, options.toy_size, options.seed)
    if options.val_src:
        train, held_out = pairs, read_two(Path(options.val_src), Path(options.val_tgt))
    else:
        train, held_out = split(pairs, min(options.held_out, len(pairs) // 10))
    if not train or not held_out:
        raise CorpusError(
            f"{name} has too few pairs: {len(train):,} to learn from and {len(held_out):,} held out; take more, or "
            "name held-out ones with --val_src and --val_tgt"
        )
    if options.swap:
        train, held_out = ([(target, source) for source, target in part] for part in (train, held_out))
    lines = "".join(f"{source}\t{target}\n" for part in (train, held_out) for source, target in [*part, ("", "")])
    return PairCorpus(name, train, held_out, hashlib.sha256(lines.encode("utf-8")).hexdigest())


def read_table(path: Path) -> list[SentencePair]:
    """The pairs of a file with source TAB target in each line; further columns and empty lines are passed over.

    Raises: CorpusError with the number of a line that has no tab or an empty side.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 2 or not cells[0] or not cells[1]:
            raise CorpusError(f"{path}, line {number}: expected source TAB target, both with something in them")
        pairs.append((cells[0], cells[1]))
    return pairs


def read_two(source: Path, target: Path) -> list[SentencePair]:
    """The pairs of two files, line by line; a pair with an empty side is passed over.

    Raises: CorpusError if one file has more lines than the other.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise CorpusError(
            f"{source} has {len(sources):,} lines and {target} has {len(targets):,}: line n of one must be the "
            "translation of line n of the other"
        )
    pairs = zip(map(str.strip, sources), map(str.strip, targets), strict=True)
    return [(one, other) for one, other in pairs if one and other]


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, letters with their accents in one (NFC).

    Raises: CorpusError if it is missing or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CorpusError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8") from None
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n"))
    return text.removesuffix("\n").split("\n") if text else []


def split(pairs: Sequence[SentencePair], held_out: int) -> tuple[list[SentencePair], list[SentencePair]]:
    """Hold out about so many pairs, so that none of their sentences, in either language, is learned from.

    Pairs that share a sentence go the same way, all of them: they form groups, found by joining each pair's source to
    its target (union-find). Which groups are held out depends on their sentences only, by way of a hash, not on the
    order of the pairs.
    """
    parent: dict[tuple[int, str], tuple[int, str]] = {}

    def root(sentence: tuple[int, str]) -> tuple[int, str]:
        parent.setdefault(sentence, sentence)
        while parent[sentence] != sentence:
            parent[sentence] = parent[parent[sentence]]  # halves the way for the next time
            sentence = parent[sentence]
        return sentence

    for source, target in pairs:
        one, other = root((0, key_of(source))), root((1, key_of(target)))
        parent[max(one, other)] = min(one, other)
    groups: dict[tuple[int, str], list[int]] = {}
    for i, (source, _) in enumerate(pairs):
        groups.setdefault(root((0, key_of(source))), []).append(i)
    chosen: set[int] = set()
    for _, group in sorted((hashlib.sha256(repr(name).encode()).digest(), group) for name, group in groups.items()):
        if len(chosen) < held_out and len(group) <= max(1, held_out // 10):  # no group may fill it
            chosen.update(group)
    learned = [pair for i, pair in enumerate(pairs) if i not in chosen]
    return learned, [pair for i, pair in enumerate(pairs) if i in chosen]


def key_of(sentence: str) -> str:
    """What counts as the same sentence: upper and lower case and what stands at its end make no difference.

    >>> key_of("Guten Tag!") == key_of("guten  Tag")
    True
    """
    return " ".join(sentence.casefold().split()).rstrip(" .!?")
