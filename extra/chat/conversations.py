"""Conversations about a small world, in German and English: greetings, a hundred facts, names, sums, and limits.

The world is in three tables in world/. `sentences.tsv` has questions with blanks, some for training and some for
testing, and one answer for each kind of question. `facts.tsv` and `words.tsv` have what fills the blanks:

    capital  de  train   Wie heißt die Hauptstadt von {x}?        capital  known     Frankreich  Paris  France  Paris
    capital  de  test    Wie nennt man die Hauptstadt von {x}?    capital  unknown   Narnia             Narnia
    capital  de  answer  Die Hauptstadt von {x} ist {y}.

The answer to anything unknown is "Das weiß ich nicht.", be it a country that is not in the table or tomorrow's weather.
A conversation is a list of turns; the last one is the answer to be learned. In a pair the turns before it are the
source, one line each.

What the tests ask was never seen in training: `templates` has other questions, `combinations` has the questions of the
training with other names, things and sums, with what is unknown, and with those facts that training asked for in other
words. A third test, `by_hand`, is in world/by_hand.tsv: fifty questions as people write them.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinygrad_lite.random import keyed_rng
from training.cli.files import lines_of
from training.corpora.divided_pairs import PairCorpus
from training.corpora.pair_cleaning import Pair

WORLD = Path(__file__).with_name("world")
PARTS = ("train", "templates", "combinations")
FACTS = ("capital", "opposite", "colour", "legs", "author")
# How often each kind is asked for.
KINDS = {"sum": 30, "capital": 12, "opposite": 9, "author": 8, "my name": 8, "whose name": 8, "other words": 8}
KINDS |= {"colour": 7, "legs": 5, "unknown": 5, "greeting": 2, "farewell": 1, "thanks": 1, "who": 2, "can": 1}
PLAIN = ("unknown", "greeting", "farewell", "thanks", "who", "can")  # without blanks, so there is nothing to combine
UNKNOWN = 0.3  # of the facts that are asked for, and of the questions about a name, have no known answer
EARLIER = 0.3  # of the conversations have earlier turns
INVENTED = 0.5  # of the names, things and unknown subjects: so a model learns to copy any word
BEFORE, CARELESS = 0.4, 0.2  # of the questions have words before them; are typed without capitals or a mark at the end
SYLLABLES = "an bar bel chan dor el fin gar hil im jo kas lin mar nor ol pet ris sam tul ul vik wen zor".split()
LANGUAGES = ("de", "en")


class Asked(NamedTuple):
    """A question with its answer: `turns` are what was said before the answer, the question last."""

    kind: str
    turns: tuple[str, ...]
    answer: str
    is_known: bool = True


@cache
def table(name: str) -> list[list[str]]:
    """The rows of a table of the world."""
    text = (WORLD / f"{name}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in lines_of(text)]


@cache
def sentences(kind: str, language: str, part: str) -> list[str]:
    """The questions of a kind in a part, or its "answer"."""
    return [text for *where, text in table("sentences") if where == [kind, language, part]]


@cache
def facts(kind: str, part: str, language: str) -> list[list[str]]:
    """Subjects and what to say about them; the parts are "known", "unknown" and "unknown test"."""
    first = 2 + 2 * LANGUAGES.index(language)
    return [row[first : first + 2] for row in table("facts") if row[:2] == [kind, part]]


@cache
def words(kind: str, part: str, language: str) -> list[str]:
    """Names or things."""
    return [row[2 + LANGUAGES.index(language)] for row in table("words") if row[:2] == [kind, part]]


def pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    """One of the items, drawn at random."""
    return items[rng.integers(len(items))]


def is_held_out(*what: object) -> bool:
    """Whether a combination is kept for the test: a tenth of all are."""
    return zlib.crc32(" ".join(map(str, what)).encode("utf-8")) % 10 == 0


def upper(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def invented(rng: np.random.Generator) -> str:
    """A word that does not exist, of two or three syllables."""
    return upper("".join(rng.choice(SYLLABLES, rng.integers(2, 4))))


def typed(rng: np.random.Generator, question: str, language: str, part: str, copies: bool) -> str:
    """A question as someone might type it: with words before it, or in lower case, or without a mark at the end.

    Args:
        copies: whether the answer has words of the question, which then keep their capitals.
    """
    if rng.random() < BEFORE:
        before = pick(rng, sentences("before", language, "test" if part == "templates" else "train"))
        question = f"{before} {question}"
    if part != "templates" and rng.random() < CARELESS:
        question = question.rstrip(".?!") if copies else question.rstrip(".?!").lower()
    return question


def ask(rng: np.random.Generator, part: str, kind: str, language: str) -> Asked | None:
    """A question of a kind; None if what was drawn belongs to another part."""
    is_test, is_new = part == "templates", part == "combinations"
    question = pick(rng, sentences(kind, language, "test" if is_test else "train"))
    (answer,), (refusal,) = (sentences(name, language, "answer") for name in (kind, "unknown"))
    filled, turns, is_known = {}, (), kind != "unknown"
    words_of, invents = "test" if is_new else "train", not is_new and rng.random() < INVENTED
    if kind in FACTS:
        is_known = bool(rng.random() > UNKNOWN)
        x, y = pick(rng, facts(kind, "known" if is_known else "unknown test" if is_new else "unknown", language))
        filled = {"x": x if is_known or not invents else invented(rng), "y": y}
        if is_known and not is_test and is_held_out(question, x) != is_new:
            return None
    elif kind == "sum":
        a, b = rng.integers(10, 100, 2)
        filled = {"a": a, "b": b, "c": a + b}
        if is_held_out(a, b) != is_new:
            return None
    elif kind == "other words":
        w, z = pick(rng, facts("opposite", "known", language))
        w, z = (w, z) if rng.random() < 0.5 else (z, w)
        thing = pick(rng, words("thing", words_of, language))
        filled = {"x": f"{thing.split()[0]} {invented(rng)}" if invents else thing, "w": w, "z": z}
    elif kind in ("my name", "whose name"):
        filled = {"x": invented(rng) if invents else pick(rng, words("name", words_of, language))}
        if kind == "whose name" and (is_known := bool(rng.random() > UNKNOWN)):
            told, (reply,) = (sentences("my name", language, name) for name in ("train", "answer"))
            turns = (pick(rng, told).format(**filled), reply.format(**filled))
    said = upper(answer.format(**filled)) if is_known else refusal
    copies = kind in ("my name", "other words", "author")
    asked = typed(rng, upper(question.format(**filled)), language, part, copies)
    return Asked(kind, (*turns, asked), said, is_known)


def conversation(rng: np.random.Generator, part: str) -> Asked:
    """A question, preceded by the name that it asks about, or by something that does not matter to it."""
    kind, language = pick(rng, bag(part)), pick(rng, LANGUAGES)
    while (asked := ask(rng, part, kind, language)) is None:
        pass
    if len(asked.turns) == 1 and rng.random() < EARLIER:
        others = [name for name in KINDS if "name" not in name]
        while (earlier := ask(rng, "train", pick(rng, others), language)) is None:
            pass
        return asked._replace(turns=(*earlier.turns, earlier.answer, *asked.turns))
    return asked


@cache
def bag(part: str) -> list[str]:
    """The kinds of a part, each repeated according to its weight."""
    kinds = [kind for kind in KINDS if part != "combinations" or kind not in PLAIN]
    return [kind for kind in kinds for _ in range(KINDS[kind])]


def conversations(part: str, count: int, seed: int = 0) -> Iterator[Asked]:
    """The first conversations of a part, all different, drawn with the key (seed, part)."""
    rng, seen = keyed_rng(seed, f"conversations {part}"), set()
    while len(seen) < count:
        asked = conversation(rng, part)
        if asked.turns not in seen:
            seen.add(asked.turns)
            yield asked


def chat_corpus(count: int = 40_000, held_out: int = 500) -> PairCorpus:
    """Pairs of what was said and the answer; `held_out` pairs of each of the two tests are held out."""

    def pairs(part: str, many: int) -> list[Pair]:
        return [("\n".join(asked.turns), asked.answer) for asked in conversations(part, many)]

    held = [pair for part in PARTS[1:] for pair in pairs(part, held_out // 2)]
    return PairCorpus("chat", pairs("train", count), held)
