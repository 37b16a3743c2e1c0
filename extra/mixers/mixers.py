"""Mixers of positions beyond attention: a long convolution with gates (Hyena), a recurrence without tanh (Mamba-2).

    B batch    T positions    C width    H heads    D head width

Both take less than T^2 operations. Both read an input through a short convolution first, so that a position sees its
two predecessors, and both are causal and need no position codes. Each takes what a block gives to attention: a text
mask, and a cache while text is generated.

**Hyena.** Three maps of the input, q, k and v, and one long convolution between two gates: y = q * conv(h, k * v). The
filter h is not stored but computed from the position by a small network, times a window that decays exponentially: so
it may have any length, and neighbouring distances have similar weights (`long_conv.py` has the convolution).

**Mamba-2.** Attention without a softmax is a recurrence: with S = sum_s k_s v_s^T, a (D, D) matrix for each head,
q_t S is the sum over all earlier v_s, weighted by q_t . k_s. A decay a_t in (0, 1), computed from the input, lets it
forget:

    S_t = a_t S_(t-1) + k_t v_t^T,     o_t = q_t S_t                                  step by step: T small steps

    o_t = sum_(s <= t) (a_(s+1) ... a_t) (q_t . k_s) v_s                              all at once: T^2 products

The chunked form is between the two: all at once within a chunk of positions, and S passed from one chunk to the next.
It trains fast, since it consists of matrix products; text is generated step by step, in the same time for every token.

References: Poli et al. 2023 (arXiv:2302.10866), section 3; Dao, Gu 2024 (arXiv:2405.21060), sections 2, 6 and 7;
Katharopoulos et al. 2020 (arXiv:2006.16236) on attention as a recurrence.
"""

import math
from typing import Any

import numpy as np

from extra.mixers.long_conv import long_conv
from extra.mixers.recurrent import RECURRENT, RecurrentMixer, RecurrentState, StateMixer
from tinygrad_lite.functional.attention import weighted
from tinygrad_lite.nn import Dropout, Linear, Module, Parameter, RMSNorm, uniform
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MIXERS, Mixer

CHUNK = 32  # positions
SHORT = 3  # positions of the short convolution
FEATURES = 8  # frequencies that the network of Hyena's filters sees
FASTEST, SLOWEST = 0.3, 1.5  # decays of Hyena's windows: to e^-1 after this share of the context, and beyond it


class ShortConv(Module):
    """Each channel is a weighted sum of its last SHORT values: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int) -> None:
        self.taps = Parameter.create((SHORT, width), uniform(SHORT))

    def forward(self, x: Tensor) -> Tensor:
        steps = x.shape[1]
        padded = x.pad(((0, 0), (SHORT - 1, 0), (0, 0)))
        return sum(padded[:, n : n + steps] * self.taps[n] for n in range(SHORT))


def text_only(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, T, C) with zeros where the mask (B, T) says that there is no text."""
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)


class ImplicitFilter(Module):
    """The filters of a long convolution, computed from the position: T -> (T, C)."""

    def __init__(self, width: int, context: int, hidden: int = 32) -> None:
        self.context = context
        self.first = Linear(2 * FEATURES + 1, hidden)
        self.second = Linear(hidden, width)
        self.decays = np.geomspace(1 / FASTEST, 1 / SLOWEST, width)

    def reset(self) -> None:
        """Initial weights as for every linear map in torch: with GPT-2's, filters would start near 0."""
        for part in (self.first, self.second):
            for weight in part.parameters():
                weight.reset(uniform(part.in_features))

    def forward(self, steps: int) -> Tensor:
        like = self.first.weight
        t = np.arange(steps)[:, None] / self.context
        angles = 2 * np.pi * t * 2.0 ** np.arange(FEATURES)
        seen = Tensor(np.concatenate([t, np.sin(angles), np.cos(angles)], 1).astype(like.dtype), device=like.device)
        window = Tensor(np.exp(-t * self.decays).astype(like.dtype), device=like.device)
        return self.second(self.first(seen).sin()) * window


class Hyena(StateMixer):
    """y = q * (conv(h, k * v) + d * k * v), of the second order: two gates and one long convolution between them."""

    def __init__(self, n_embd: int, context: int, dropout: float = 0.0, bias: bool = True) -> None:
        self.maps = Linear(n_embd, 3 * n_embd, bias)
        self.short = ShortConv(3 * n_embd)
        self.filter = ImplicitFilter(n_embd, context)
        self.through = Parameter.create((n_embd,), lambda shape: np.ones(shape, np.float32))  # d
        self.output = Linear(n_embd, n_embd, bias)
        self.dropout = Dropout(dropout)

    def mix(self, x: Tensor, mask: Tensor | None, cache: RecurrentState) -> Tensor:
        """(B, T, C) -> (B, T, C). A cache keeps all inputs, and everything is computed again for each token."""
        steps, maps = x.shape[1], cache.after(text_only(self.maps(x), mask))
        cache.inputs, cache.length = maps.detach(), maps.shape[1]
        q, k, v = self.short(maps).chunk(3, axis=-1)
        u = k * v
        mixed = long_conv(u, self.filter(u.shape[1])) + u * self.through
        return self.dropout(self.output((q * mixed)[:, u.shape[1] - steps :]))


def by_steps(q: Tensor, k: Tensor, v: Tensor, log_a: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """S_t = a_t S_(t-1) + k_t v_t^T, o_t = q_t S_t, one step after the other: the definition.

    Args:
        q, k, v: (B, H, T, D).
        log_a: (B, H, T), logarithms of the decays.
        state: S_0, (B, H, D, D).
    Returns: o (B, H, T, D), and the last S.
    """
    found = []
    for t in range(q.shape[2]):
        now = slice(t, t + 1)
        state = log_a[:, :, now].exp().unsqueeze(-1) * state + k[:, :, now].transpose(-1, -2) @ v[:, :, now]
        found.append(q[:, :, now] @ state)
    return Tensor.cat(*found, axis=2) if found else v, state


def by_chunks(q: Tensor, k: Tensor, v: Tensor, log_a: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """`by_steps`, CHUNK positions at a time. With A_t = log(a_1 ... a_t) in the chunk,

    o_t = e^(A_t) q_t S + sum_(s <= t) e^(A_t - A_s) (q_t . k_s) v_s
    S   = e^(A_last) S + sum_s e^(A_last - A_s) k_s v_s^T
    """
    found = []
    for start in range(0, q.shape[2], CHUNK):
        part = slice(start, start + CHUNK)
        qs, ks, vs = q[:, :, part], k[:, :, part], v[:, :, part]
        size = qs.shape[2]
        lower = Tensor(np.tri(size, dtype=q.dtype), device=q.device)
        sums = weighted(lower, log_a[:, :, part].unsqueeze(-1)).squeeze(-1)  # A, (B, H, size)
        later = Tensor(~np.tri(size, dtype=bool), device=q.device)
        decays = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).clip(high=0.0).exp()  # clipped where s is later than t
        inside = weighted((qs @ ks.transpose(-1, -2) * decays).masked_fill(later, 0.0), vs)
        found.append(inside + sums.exp().unsqueeze(-1) * (qs @ state))
        last = sums[:, :, -1:]
        kept = ks * (last - sums).exp().unsqueeze(-1)
        state = last.exp().unsqueeze(-1) * state + kept.transpose(-1, -2) @ vs
    return Tensor.cat(*found, axis=2) if found else v, state


class Mamba2(StateMixer):
    """The recurrence above in H heads, with a short convolution before it, and a norm and a gate after it.

    a_t = exp(-dt_t r), with a learned rate r for each head and dt_t = softplus(w . x_t + b): a position that matters
    has a large dt, which lets the past decay and, since v is multiplied by it, the present in.
    """

    def __init__(self, n_embd: int, n_head: int, dropout: float = 0.0, bias: bool = True) -> None:
        self.n_head = n_head
        self.maps = Linear(n_embd, 3 * n_embd, bias)
        self.short = ShortConv(3 * n_embd)
        self.gate = Linear(n_embd, n_embd, bias)
        self.pace = Linear(n_embd, n_head)
        self.log_rate = Parameter.create((n_head,), lambda shape: np.log(np.linspace(0.02, 0.5, *shape)).astype("f4"))
        self.through = Parameter.create((n_head, 1, 1), lambda shape: np.ones(shape, np.float32))
        self.norm = RMSNorm(n_embd)
        self.output = Linear(n_embd, n_embd, bias)
        self.dropout = Dropout(dropout)

    def reset(self) -> None:
        """Initial weights as for every linear map in torch: products of q, k, v and gate would be tiny with GPT-2's."""
        for part in (self.maps, self.gate):
            part.weight.reset(uniform(part.in_features))

    def mix(self, x: Tensor, mask: Tensor | None, cache: RecurrentState) -> Tensor:
        """(B, T, C) -> (B, T, C). A cache keeps S, and the inputs that the short convolution still sees."""
        batch, steps, width = x.shape
        maps = cache.after(text_only(self.maps(x), mask))
        heads = self.short(maps)[:, maps.shape[1] - steps :].silu()
        heads = heads.reshape(batch, steps, 3 * self.n_head, width // self.n_head).transpose(1, 2)
        q, k, v = heads.chunk(3, axis=1)  # (B, H, T, D)
        pace = self.pace(x).transpose(1, 2)
        dt = pace.relu() + (1 + (-pace.abs()).exp()).log()  # softplus, log(1 + e^x), (B, H, T)
        empty = Tensor.zeros(*q.shape[:2], q.shape[3], q.shape[3], dtype=x.dtype, device=x.device)
        state = empty if cache.state is None else cache.state
        compute = by_steps if steps == 1 else by_chunks
        log_a = -dt * self.log_rate.exp().reshape(1, -1, 1)
        found, state = compute(q / math.sqrt(q.shape[3]), k, v * dt.unsqueeze(-1), log_a, state)
        cache.inputs, cache.state, cache.length = maps.detach()[:, 1 - SHORT :], state.detach(), cache.length + steps
        joined = (found + v * self.through).transpose(1, 2).reshape(batch, steps, width)
        return self.dropout(self.output(self.norm(joined) * self.gate(x).silu()))


# --- from settings to a layer ----------------------------------------------------------------------------------


def recurrent(config: Any) -> Module:
    """A recurrent layer as a mixer of positions."""
    layer = RECURRENT[config.mixer](config.n_embd, config.state_width)
    return RecurrentMixer(layer, config.n_embd, config.dropout, config.bias)


def hyena(config: Any) -> Module:
    """Gates and a long convolution."""
    return Hyena(config.n_embd, config.block_size, config.dropout, config.bias)


def mamba2(config: Any) -> Module:
    """A recurrence without a tanh."""
    return Mamba2(config.n_embd, config.n_head, config.dropout, config.bias)


MIXERS |= {
    "rnn": Mixer(recurrent, lambda c: 2 * c.state_width, lambda c: c.state_width, ("n_state",)),
    "lstm": Mixer(recurrent, lambda c: 8 * c.state_width, lambda c: 2 * c.state_width, ("n_state",)),
    "hyena": Mixer(hyena, lambda c: 18 * c.n_embd, lambda c: 3 * c.block_size * c.n_embd, ()),
    "mamba2": Mixer(mamba2, lambda c: 30 * c.n_embd, lambda c: c.n_embd * (c.n_embd // c.n_head + 6), ("n_head",)),
}
