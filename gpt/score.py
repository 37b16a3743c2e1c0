"""A model's loss on any text, measured as training measures it on the held-out text.

The text is cut into consecutive windows as long as the model's context, and every token but the first is predicted
once, from those before it in its window. The mean of -ln p(token) is the loss in nats per token; it depends
on the tokenizer. Bits per character are comparable across tokenizers:

    bits per character = nats per token / ln 2 / characters per token

An unknown character counts as the token <unk>, that is, with the probability of *any* unknown character; to tell which
one it is would cost more bits. So a text with many of them seems easier than it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpt.data import TextData
from gpt.model import GPT
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cli.errors import CheckpointError, CorpusError
from tinygrad_lite.corpora.texts import Corpus
from tinygrad_lite.tokenizers.base import Tokenizer

BATCH_SIZE = 16  # windows per batch; it affects the result by rounding only


@dataclass(frozen=True)
class Score:
    """The loss of a model on a text."""

    characters: int
    tokens: int
    nats_per_token: float
    bits_per_character: float


def score(model: GPT, tokenizer: Tokenizer, corpus: Corpus) -> Score:
    """The loss of a model on a whole text.

    Raises: CorpusError if the text has fewer than two tokens, so that there is none to predict; CheckpointError if the
        model's loss is not a number.
    """
    tokens = np.array(tokenizer.encode(corpus.text))
    if len(tokens) < 2:
        raise CorpusError(f"{corpus.name} has fewer than two tokens, so there is none to predict: use a longer text")
    data = TextData(
        corpus=corpus,
        tokenizer=tokenizer,
        train=tokens[:0],  # nothing is learned here
        held_out=tokens,
        chars_per_token=len(corpus.text) / len(tokens),
        block_size=model.config.block_size,
        seed=0,
        device=model.token_embedding.weight.device,
    )
    model.eval()
    nats, count = 0.0, 0
    with no_grad():
        for ids, targets in data.validation_batches(BATCH_SIZE, eval_iters=0):
            nats += model.loss((ids, targets)).item() * targets.numel()
            count += targets.numel()
    nats_per_token = nats / count
    if not math.isfinite(nats_per_token):
        raise CheckpointError(f"the model's loss on {corpus.name} is {nats_per_token}: its training diverged")
    return Score(len(corpus.text), len(tokens), nats_per_token, data.bits_per_character(nats_per_token))
