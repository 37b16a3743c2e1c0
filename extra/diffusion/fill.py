"""Uncovering hidden tokens step by step: at random places, or those first of which the model is most certain.

    Es irrt der <mask> <mask> <mask>, so lang er strebt.        step 1: three distributions, one token is kept
    Es irrt der <mask> <mask>ch, so lang er strebt.             step 2: two distributions, given that token

All tokens that one step keeps are drawn independently of each other, each from its own distribution. So with as many
steps as tokens, in random order, texts have the model's distribution p (model.py), and the fewer steps the less two
neighbours know of each other. By confidence, those with the highest probability are kept ("low-confidence remasking" in
LLaDA; Chang et al. 2022, MaskGIT, arXiv:2202.04200): better texts, but fewer different ones.

The model always reads a whole window: what follows the text is hidden, as it is in training. A text longer than that is
continued from its last half, as a GPT's is.
"""

from collections.abc import Collection

import numpy as np

from extra.diffusion.model import Diffusion
from extra.options import ShelfSampleOptions
from text.decoding.sampling import draw, filter_tokens, permitted
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor


def fill(
    model: Diffusion, texts: np.ndarray, options: ShelfSampleOptions, forbidden: Collection[int] = (), window: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Uncover every <mask> of texts (B, n), at the same places in all rows.

    Args:
        options: those of sample.py, of which `steps`, `order` and the settings of sampling are read. The random numbers
            of a row depend only on the seed, its number and `window`.
        forbidden: tokens that are never drawn.
    Returns: (B, n) the tokens, and the step in which each was uncovered; 0: it was given.
    """
    sampling, places, size = options.sampling(), np.flatnonzero(texts[0] == model.mask), model.config.block_size
    ids = np.pad(texts, ((0, 0), (0, size - texts.shape[1])), constant_values=model.mask)
    when, weight, count = np.zeros_like(ids), model.token_embedding.weight, len(places)
    rngs = [keyed_rng(sampling.seed, "fill", row, window) for row in range(len(ids))]
    ranks = np.array([rng.permutation(count) for rng in rngs])
    hidden = np.tile(np.arange(count), (len(ids), 1))  # numbers of places: (B, m), of which `left` stay hidden
    ends = np.linspace(count, 0, min(options.steps, count) + 1).round().astype(int)
    for step, left in enumerate(ends[1:], start=1):
        rows = np.arange(len(ids))[:, None] * size + places[hidden]
        with no_grad():
            arrays = (Tensor(array, dtype=np.int64, device=weight.device) for array in (ids, rows.ravel()))
            log_probs = model(*arrays).cast(weight.dtype).log_softmax().numpy()
        log_probs = permitted(log_probs, {*forbidden} - {model.mask})
        if sampling.temperature == 0:
            tokens = log_probs.argmax(axis=-1)
        else:
            uniform = np.array([rng.random(hidden.shape[1]) for rng in rngs])  # drawn again, as in LLaDA
            tokens = draw(filter_tokens(log_probs, sampling), uniform.ravel())
        certainty = np.take_along_axis(log_probs, tokens[:, None], 1).reshape(hidden.shape)
        score = certainty if options.order == "confidence" else np.take_along_axis(ranks, hidden, 1)
        kept, rest = np.split(np.argsort(-score, axis=1, kind="stable"), [hidden.shape[1] - left], axis=1)
        where = places[np.take_along_axis(hidden, kept, 1)]
        np.put_along_axis(ids, where, np.take_along_axis(tokens.reshape(hidden.shape), kept, 1), 1)
        np.put_along_axis(when, where, step, 1)
        hidden = np.take_along_axis(hidden, rest, 1)
    return ids[:, : texts.shape[1]], when[:, : texts.shape[1]]


def write(
    model: Diffusion, texts: np.ndarray, count: int, options: ShelfSampleOptions, forbidden: Collection[int] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Continue texts (B, n) by `count` tokens, a window at a time; the result is as of `fill`."""
    size, when, window = model.config.block_size, np.zeros_like(texts), 0
    while count:
        context = texts[:, -max(size // 2, size - count) :]
        new, window = min(count, size - context.shape[1]), window + 1
        hidden = np.pad(context, ((0, 0), (0, new)), constant_values=model.mask)
        found, steps = fill(model, hidden, options, forbidden, window)
        texts = np.concatenate((texts, found[:, -new:]), axis=1)
        when = np.concatenate((when, when.max() + steps[:, -new:]), axis=1)
        count -= new
    return texts, when
