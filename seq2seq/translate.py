"""From sentences to translations: tokens, batches, search, text.

A translation does not depend on the other sentences of its batch (up to rounding): padding is masked, and the maximum
length of a translation depends on its sentence alone, since only sentences with the same maximum share a batch.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.data import BOS, EOS
from seq2seq.model import Seq2Seq
from text.decoding.batches import search_in_batches
from text.decoding.beam import Hypothesis
from text.decoding.sampling import generate
from text.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Translation(Hypothesis):
    """One translation: the hypothesis of the search, whose stop token is <eos>, and its text."""

    text: str


NOTHING = Translation([], 0.0, 0, 0.0, True, "")


def longest_translation(source_tokens: int, block_size: int) -> int:
    """The maximum length of a translation in tokens: one and a half times the source, plus a margin.

    The source length is rounded up to a multiple of eight, so that sentences of similar length can share a batch.

    >>> longest_translation(1, 256), longest_translation(10, 256), longest_translation(1000, 256)
    (28, 40, 255)
    """
    return min(16 + 12 * -(-source_tokens // 8), block_size - 1)


def translate(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    beam: int = 1,
    n_best: int = 1,
    length_penalty: float | None = None,
) -> list[list[Translation]]:
    """Translate sentences, in batches; for each its n_best best translations, best first.

    Args:
        beam: number of hypotheses that each search keeps; 1 is greedy search.
        length_penalty: see `text/decoding/beam.py`; None: the one in the model's settings.
    Returns: a list for each sentence. An empty sentence has an empty translation; a sentence longer than the model's
        block_size is cut there.
    """
    block_size, eos = model.config.block_size, tokenizer.specials[EOS]
    settings = {"beam": beam, "n_best": n_best, "length_penalty": penalty_of(model, length_penalty), "stop_token": eos}
    settings |= {"forbidden": [token for token in tokenizer.textless if token != eos]}
    sources = [tokenizer.encode(sentence)[:block_size] for sentence in sentences]
    texts = [source for source in sources if source]
    limits = [longest_translation(len(text), block_size) for text in texts]
    found = search_in_batches(model, texts, limits, **settings)
    translations = ([Translation(**vars(one), text=text_of(tokenizer, one.tokens)) for one in each] for each in found)
    return [next(translations) if source else [NOTHING] for source in sources]


def penalty_of(model: Seq2Seq, length_penalty: float | None) -> float:
    """The length penalty of a search: the given one, or else the one in the model's settings."""
    return model.config.length_penalty if length_penalty is None else length_penalty


def draw(model: Seq2Seq, tokenizer: Tokenizer, sentence: str, *, first_row: int = 0, **settings: Any) -> Iterator[str]:
    """Draw random translations of a sentence, without end; those of an empty sentence are empty.

    Args:
        first_row: with the seed, the key of the first translation's random numbers; the next has first_row + 1.
        settings: temperature, top_k and so on, as `generate` takes them.
    """
    block_size, eos = model.config.block_size, tokenizer.specials[EOS]
    source = tokenizer.encode(sentence)[:block_size]
    settings |= {"max_new_tokens": longest_translation(len(source), block_size), "stop_token": eos}
    settings |= {"forbidden": [token for token in tokenizer.textless if token != eos]}
    for row in itertools.count(first_row):
        if not source:
            yield ""
            continue
        tokens = generate(model.step, *model.start([source]), first_row=row, **settings)
        yield text_of(tokenizer, [int(token[0]) for token in tokens])


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """The text of a translation, without <bos> and <eos>."""
    ends = {tokenizer.specials[BOS], tokenizer.specials[EOS]}
    return tokenizer.decode([token for token in tokens if token not in ends]).strip()
