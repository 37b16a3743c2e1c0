"""Masked diffusion: the GPT without the causal mask learns to uncover hidden tokens, however many are hidden.

    ids (B, T), some of them <mask> -> blocks in which each position attends to all -> logits of the hidden ones (N, V)

BERT hides a fixed share of the tokens, and can fill a gap. Here the share is anything from one token to all of them, so
the model can also begin with nothing but <mask> and uncover a whole text, in any order and several tokens at a time.

Its loss says how probable texts are. An order s of the n tokens of a text x gives it the probability

    ln p(x | s) = sum over k of ln p(x_s(k) | the tokens that come before k in s)

and p(x) is the mean of p(x | s) over all orders. Since ln is concave, -ln p(x) is at most the mean of -ln p(x | s). In
that mean, the last m tokens of a random order are a random set of m hidden tokens, and the first of them to be
uncovered is any of these with the same probability:

    -ln p(x) <= sum over m = 1 .. n of the mean, over sets of m hidden tokens, of their mean -ln p
              = the mean, over shares t = m / n and sets, of (1 / t) times the sum of -ln p of the hidden tokens

So the weight of a hidden token is 1/t; divided by n, that is 1/m: each row is a mean over its hidden tokens. The papers
hide each token with probability t, drawn from (0, 1). That has the same expectation, because the integral over t of
binomial(n, m) t^(m - 1) (1 - t)^(n - m) is 1/m, but more variance.

References: Sahoo et al. 2024 (arXiv:2406.07524), Shi et al. 2024 (arXiv:2406.04329); Nie et al. 2025 (LLaDA,
arXiv:2502.09992), equation 6 of which counts the hidden tokens as this does; orders: Uria, Murray, Larochelle 2014.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from gpt.model import GPT
from tinygrad_lite import functional as F
from tinygrad_lite.flops import attention_flops, training_flops
from tinygrad_lite.tensor import Tensor

MASK = "<mask>"  # the last token of the vocabulary


class HiddenBatch(NamedTuple):
    """Rows with hidden tokens.

    Attributes:
        ids: (B, T), in which hidden tokens are replaced by <mask>.
        places: (N,), the hidden positions, numbered through the whole batch: row * T + position.
        targets: (N,), the tokens that were there.
        weights: (N,), 1 / (m B) in a row with m hidden tokens.
    """

    ids: Tensor
    places: Tensor
    targets: Tensor
    weights: Tensor


class Diffusion(GPT):
    """A GPT in which every position attends to all; the last token of its vocabulary hides another one."""

    fast_versions: ClassVar = {}

    @property
    def mask(self) -> int:
        """The token that hides another one."""
        return self.config.vocab_size - 1

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        """The logits of what is hidden at these places: (B, T), (N,) as in `HiddenBatch` -> (N, V - 1), no <mask>."""
        x = self.dropout(self._embed(ids, np.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        hidden = F.embedding(places, x.reshape(-1, self.config.n_embd))  # rows, looked up by number: (N, C)
        return F.linear(self.final_norm(hidden), self.lm_head.weight[: self.mask])

    def loss(self, batch: HiddenBatch) -> Tensor:
        """Nats per token: the mean over rows of the mean over their hidden tokens."""
        losses = F.cross_entropy(self(batch.ids, batch.places), batch.targets, reduction="none", overwrite=True)
        return (losses * batch.weights.cast(losses.dtype)).sum()

    def flops_per_token(self) -> int:
        """As of a GPT, but on average half of the tokens are hidden, and have logits."""
        return training_flops(self, attention_flops(self.config) - self.lm_head.weight.numel())


def hidden_sets(shares: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """Random sets of hidden tokens: (B,) shares in [0, 1) -> (B, length), True where hidden, at least one in a row.

    The first token of a row is never hidden: to a GPT it is given, too.
    """
    counts = 1 + (shares * (length - 1)).astype(int)
    order = rng.permuted(np.tile(np.arange(length - 1), (len(shares), 1)), axis=1)
    return np.pad(order < counts[:, None], ((0, 0), (1, 0)))


def hide(tokens: np.ndarray, hidden: np.ndarray, mask: int, device: str) -> HiddenBatch:
    """The batch in which these tokens (B, T) are hidden; each row has at least one."""
    weights = hidden / hidden.sum(axis=1, keepdims=True) / len(hidden)
    integers = np.where(hidden, mask, tokens), np.flatnonzero(hidden), tokens[hidden]
    tensors = [Tensor(array, dtype=np.int64, device=device) for array in integers]
    return HiddenBatch(*tensors, Tensor(weights[hidden], device=device))
