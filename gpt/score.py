"""A model's loss on any text, measured as training measures it on the held-out text.

The text is cut into consecutive windows as long as the model's context, and every token but the first is predicted
once, from those before it in its window. The mean of -ln p(token) is the loss in nats per token; it depends
on the tokenizer. Bits per character are comparable across tokenizers:

    bits per character = nats per token / ln 2 / characters per token

The characters, too, are those of the tokens that are predicted (`gpt/data.py`). Where a pretrained model expects a
token such as <bos> before every text, each window begins with it.

With a stride below the context's length the windows overlap: each begins `stride` tokens after the one before it, and
of all but the first only the last `stride` tokens count. Then every token, except those at the start of the text, is
predicted from at least block_size - stride tokens. That takes block_size / stride times as long, and the numbers are
comparable only with others of the same stride.

An unknown character counts as the token <unk>, that is, with the probability of *any* unknown character; to tell which
one it is would cost more bits. So a text with many of them seems easier than it is.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpt.data import bits_per_character, characters_each
from gpt.model import GPT
from text.decoding.sample_options import SampleOptions
from text.tokenizers.base import Tokenizer
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CheckpointError, CorpusError, OptionError, counted
from tinygrad_lite.tensor import Tensor
from training.cli.console import say, write
from training.cli.prompt import warn_of_unknown
from training.corpora.texts import Corpus, load_files

BATCH_SIZE = 16  # windows per batch; it affects the result only by rounding


class Score(NamedTuple):
    """The loss of a model on a text."""

    characters: int
    tokens: int
    nats_per_token: float
    bits_per_character: float


def score(model: GPT, tokenizer: Tokenizer, corpus: Corpus, stride: int = 0) -> Score:
    """The loss of a model on a whole text.

    Args:
        stride: tokens from the start of one window to the start of the next; 0: the length of a window.
    Raises: CorpusError if the text has fewer than two tokens, so that there is none to predict; CheckpointError if the
        model's loss is not a number; OptionError for a stride longer than a window.
    """
    tokens = np.array(tokenizer.encode_whole(corpus.text))
    if len(tokens) < 2:
        raise CorpusError(f"{corpus.name} has fewer than two tokens, so there is none to predict: use a longer text")
    predicted = token_log_probs(model, tokens, stride, tokenizer.prefix)[max(len(tokenizer.prefix), 1) - 1 :]
    nats_per_token = -float(predicted.mean())
    if not math.isfinite(nats_per_token):
        raise CheckpointError(f"the model's loss on {corpus.name} is {nats_per_token}: its training diverged")
    bits = bits_per_character(nats_per_token, characters_each(tokenizer, corpus.text, tokens))
    return Score(len(corpus.text), len(tokens), nats_per_token, bits)


def show_score(options: SampleOptions, model: GPT, tokenizer: Tokenizer) -> None:
    """Print the model's loss on a text, and a warning about unknown characters."""
    corpus = load_files([options.score], as_is=tokenizer.is_foreign)
    warn_of_unknown(tokenizer, corpus.text)
    found = score(model, tokenizer, corpus)
    write(f"{found.bits_per_character:.4f} bits per character, {found.nats_per_token:.4f} nats per token\n")
    numbers = counted(found.characters, "character"), counted(found.tokens, "token")
    say(f"{', '.join(numbers)}, in windows of {model.config.block_size}")


def token_log_probs(model: GPT, tokens: np.ndarray, stride: int = 0, prefix: Sequence[int] = ()) -> np.ndarray:
    """ln p(token) of every token but the first, given those before it in its window: (N,) -> (N - 1,).

    Args:
        stride: as in `score`.
        prefix: the tokens with which the text begins, and every window, too.
    """
    block, device = model.config.block_size, model.token_embedding.weight.device
    most = block - len(prefix)
    if stride > most:
        raise OptionError(f"--stride {stride}: the windows of this model have {most} tokens; take at most that")
    stride = stride or most
    starts = range(0, max(len(tokens) - 1 - block, 0) + stride, stride)
    begin = np.array(prefix, tokens.dtype)
    windows = [np.concatenate([begin, tokens[start + len(begin) : start + block + 1]]) for start in starts]
    *whole, last = windows  # which may be shorter
    batches = [whole[first : first + BATCH_SIZE] for first in range(0, len(whole), BATCH_SIZE)]
    nats = []
    with no_grad(), model.evaluating():
        for batch in (*batches, [last]):
            rows = np.stack(batch)
            ids, targets = (Tensor(part, dtype=np.int64, device=device) for part in (rows[:, :-1], rows[:, 1:]))
            each = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten(), reduction="none")
            nats += [*each.numpy().reshape(targets.shape)]
    counted = [nats[0], *(row[block - stride :] for row in nats[1:])]  # the others counted in an earlier window
    return -np.concatenate(counted).astype(np.float64)
