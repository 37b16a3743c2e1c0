"""Beam search for many prompts at once: a batch of them takes hardly more time than one."""

from collections.abc import Sequence
from typing import Any

from text.decoding.beam import Hypothesis, beam_search
from tinygrad_lite.generator import Generator

BATCH_TOKENS = 2048  # prompt tokens of a batch, summed over all hypotheses


def search_in_batches(
    model: Generator, prompts: Sequence[Sequence[int]], limits: Sequence[int], *, beam: int, **settings: Any
) -> list[list[Hypothesis]]:
    """The best continuations of each prompt, as `beam_search` finds them.

    Only prompts with the same limit share a batch, so a result does not depend on the other prompts (up to rounding).

    Args:
        prompts: each of at least one token.
        limits: the maximum length of each continuation in tokens.
        settings: length_penalty, stop_token and so on, as for `beam_search`.
    Returns: a list for each prompt, best first.
    """
    results: dict[int, list[Hypothesis]] = {}
    for numbers in same_limit([len(prompt) for prompt in prompts], limits, beam):
        first = model.start([prompts[i] for i in numbers])
        found = beam_search(model.step, *first, beam=beam, max_new_tokens=limits[numbers[0]], **settings)
        results.update(zip(numbers, found, strict=True))
    return [results[i] for i in range(len(prompts))]


def same_limit(lengths: Sequence[int], limits: Sequence[int], beam: int) -> list[list[int]]:
    """The numbers of the prompts, in batches with the same limit, of about BATCH_TOKENS tokens each.

    >>> same_limit([3, 1, 2], [9, 5, 9], beam=1)
    [[1], [0, 2]]
    """
    batches = []
    for limit in sorted(set(limits)):
        group = [i for i, own in enumerate(limits) if own == limit]
        rows = max(1, BATCH_TOKENS // (beam * max(lengths[i] for i in group)))
        batches += [group[start : start + rows] for start in range(0, len(group), rows)]
    return batches
