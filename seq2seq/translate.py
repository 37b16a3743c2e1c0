"""From sentences to translations: tokens, batches, search, text.

A translation does not depend on the sentences beside it (up to rounding). Padding is hidden from the model, and the
longest translation allowed follows from the sentence alone: only sentences with the same limit share a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.data import BOS, EOS
from seq2seq.model import Seq2Seq
from tinygrad_lite.decoding.beam import beam_search
from tinygrad_lite.decoding.sampling import generate
from tinygrad_lite.tokenizers.base import Tokenizer

BATCH_TOKENS = 2048  # source tokens of all hypotheses together that are worked on at once


@dataclass(frozen=True)
class Translation:
    """One translation, with the numbers that stand beside it."""

    text: str
    log_prob: float  # in nats: of all its tokens together, the one that ends it included
    length: int  # tokens
    score: float  # log_prob / lp(length), see `decoding/beam.py`
    finished: bool  # False if it was cut off at the longest length allowed
    tokens: tuple[int, ...] = ()  # with <eos> if it is finished


NOTHING = Translation("", 0.0, 0, 0.0, True)


def longest_translation(source_tokens: int, block_size: int) -> int:
    """The most tokens that a translation may have: half as many again as the source, and some more.

    In steps of eight, so that sentences of about equal length share their limit and can share a batch.

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
    length_penalty: float = 0.6,
) -> list[list[Translation]]:
    """Translate sentences, in batches; for each its n_best best translations, best first.

    Args:
        beam: how many hypotheses each search keeps; 1 is greedy: always the most probable token.
        length_penalty: see `decoding/beam.py`.
    Returns: as many lists as there are sentences. A sentence without a token, such as an empty one, has an empty
        translation; of one that is longer than the model's block_size, only the beginning is translated.
    """
    block_size = model.config.block_size
    sources = [tokenizer.encode(sentence)[:block_size] for sentence in sentences]
    forbidden = [token for token in tokenizer.textless if token != tokenizer.specials[EOS]]
    results: list[list[Translation]] = [[NOTHING] for _ in sources]
    for numbers in same_limit(sources, block_size, beam):
        log_probs, state = model.start([sources[i] for i in numbers])
        found = beam_search(
            model.step,
            log_probs,
            state,
            beam=beam,
            max_new_tokens=longest_translation(len(sources[numbers[0]]), block_size),
            length_penalty=length_penalty,
            n_best=n_best,
            stop_token=tokenizer.specials[EOS],
            forbidden=forbidden,
        )
        for i, hypotheses in zip(numbers, found, strict=True):
            results[i] = [
                Translation(text_of(tokenizer, h.tokens), h.log_prob, h.length, h.score, h.finished, tuple(h.tokens))
                for h in hypotheses
            ]
    return results


def draw(model: Seq2Seq, tokenizer: Tokenizer, sentence: str, *, first_row: int = 0, **settings: Any) -> Iterator[str]:
    """Draw translations of a sentence, one after the other, without end; an empty sentence has empty ones.

    Args:
        first_row: decides, with the seed, which translations are drawn; each has its own random numbers.
        settings: temperature, top_k and so on, as `generate` takes them.
    """
    block_size, eos = model.config.block_size, tokenizer.specials[EOS]
    source = tokenizer.encode(sentence)[:block_size]
    forbidden = [token for token in tokenizer.textless if token != tokenizer.specials[EOS]]
    for row in itertools.count(first_row):
        if not source:
            yield ""
            continue
        log_probs, state = model.start([source])
        tokens = generate(
            model.step,
            log_probs,
            state,
            max_new_tokens=longest_translation(len(source), block_size),
            stop_token=eos,
            forbidden=forbidden,
            first_row=row,
            **settings,
        )
        yield text_of(tokenizer, [int(token[0]) for token in tokens])


def same_limit(sources: Sequence[Sequence[int]], block_size: int, beam: int) -> list[list[int]]:
    """The numbers of the sentences, in batches of those that share the limit of their translations' length."""
    groups: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        if source:
            groups.setdefault(longest_translation(len(source), block_size), []).append(i)
    batches = []
    for limit in sorted(groups):
        group = groups[limit]
        rows = max(1, BATCH_TOKENS // (beam * max(len(sources[i]) for i in group)))
        batches += [group[start : start + rows] for start in range(0, len(group), rows)]
    return batches


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """The text of a translation, without the specials at its ends."""
    ends = {tokenizer.specials[BOS], tokenizer.specials[EOS]}
    return tokenizer.decode([token for token in tokens if token not in ends]).strip()
