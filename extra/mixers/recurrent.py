"""Recurrent layers, and a mixer of positions made from one: what Transformers use attention for.

    B batch    T steps    C width of the input    H width of the state

A recurrent layer reads a sequence step by step; all it knows of the past is its state, which is as large after ten
steps as after ten thousand. `RNN` and `LSTM` are single layers, batch first, with torch's results. The formulas and
their derivatives are in rnn.py and lstm.py.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from extra.mixers.lstm import lstm
from extra.mixers.rnn import rnn
from tinygrad_lite.nn import Dropout, Linear, Module, Parameter, uniform
from tinygrad_lite.tensor import Tensor


class Recurrence(Module):
    """A recurrent layer: a linear map of the input, W (`weight`) for the previous state, and a state as one vector.

    Initialised as in torch, uniform in +-1/sqrt(H).
    """

    GATES: ClassVar[int] = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        self.hidden_size = hidden_size
        self.input = Linear(input_size, self.GATES * hidden_size)
        self.weight = Parameter.create((self.GATES * hidden_size, hidden_size), uniform(hidden_size))
        self.reset()

    def reset(self) -> None:
        """Initialise the weights, whatever they were."""
        for weight in self.parameters():
            weight.reset(uniform(self.hidden_size))

    def run(self, x: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """The states after each step, as one vector each: (B, T, C) -> (B, T, H), or (B, T, 2 H) with cells."""
        return self.operation(self.input(x), self.weight, state, mask)


class RNN(Recurrence):
    """h_t = tanh(U x_t + W h_(t-1) + b), one layer."""

    operation: ClassVar = staticmethod(rnn)

    def forward(self, x: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T, C) -> the states (B, T, H), and the last of them (B, H).

        Args:
            state: the initial one (B, H); None: zeros.
            mask: truth values (B, T), True where there is text: elsewhere the state is unchanged.
        """
        states = self.run(x, state, mask)
        return states, states[:, -1]


class LSTM(Recurrence):
    """Long short-term memory, one layer. The forget gate starts open, with a bias of 1.

    With 0, cells would at first lose half of their content in each step; with 1, a quarter.
    """

    operation: ClassVar = staticmethod(lstm)
    GATES: ClassVar[int] = 4

    def reset(self) -> None:
        super().reset()
        self.input.bias.reset(lambda shape: np.repeat(np.array([0, 1, 0, 0], np.float32), self.hidden_size))

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(B, T, C) -> the states h (B, T, H), and the last h and c (B, H) each. The arguments are those of `RNN`."""
        both = self.run(x, None if state is None else state[0].cat(state[1], axis=-1), mask)
        h, c = both.chunk(2, axis=-1)
        return h, (h[:, -1], c[:, -1])


RECURRENT = {"rnn": RNN, "lstm": LSTM}


@dataclass
class RecurrentState:
    """What a mixer without attention knows about the text so far, during generation: used in place of a `KVCache`.

    A state does not grow, and reading a token takes the same time however many came before. But it cannot be rewound.
    """

    length: int = 0  # positions read
    state: Tensor | None = None  # (B, ...), such as (B, H)
    inputs: Tensor | None = None  # (B, at most `length`, C), the latest, if a mixer reads them again

    def after(self, inputs: Tensor) -> Tensor:
        """Inputs (B, T, C), after those that are kept."""
        return inputs if self.inputs is None else self.inputs.cat(inputs, axis=1)

    def cut(self, length: int) -> None:
        """Forget all but the first positions. A state cannot be rewound: with one, forget all, unless all stay."""
        if length < self.length:
            whole = self.state is None and self.inputs is not None
            self.inputs, self.state = self.inputs[:, :length] if whole else None, None
            self.length = length if whole else 0

    def select(self, rows: np.ndarray) -> Self:
        """The state of these rows of the batch, in this order; a row may be taken several times (beam search)."""
        chosen = (None if kept is None else kept[rows] for kept in (self.state, self.inputs))
        return RecurrentState(self.length, *chosen)


class StateMixer(Module):
    """A mixer of positions without attention: what it knows of the text so far is a `RecurrentState`.

    Each defines `mix(x, mask, cache)`, whose result is that of `forward`: with a cache in any case, and with the mask
    (B, T) of the positions of x.
    """

    def new_cache(self, capacity: int) -> RecurrentState:
        """An empty state; it has room for any number of positions."""
        return RecurrentState()

    def forward(
        self, x: Tensor, mask: Tensor | None = None, is_causal: bool = True, cache: RecurrentState | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            mask: (B, 1, 1, S), True where there is text, of the S positions of cache and x together.
            is_causal: True, since no state knows what follows.
            cache: the state after the positions before x, which this call updates.
        """
        if not is_causal:
            raise ValueError(f"{type(self).__name__}: a recurrent layer reads from left to right, so it is causal")
        if mask is not None:
            mask = mask.reshape(*mask.shape[::3])[:, mask.shape[-1] - x.shape[1] :]
        return self.mix(x, mask, cache or RecurrentState())


class RecurrentMixer(StateMixer):
    """A recurrent layer in place of a Transformer block's attention: (B, T, C) -> (B, T, C).

    y_t = Wo h_t, with h_t the state after step t. It is inherently causal, and needs no positions: what came first was
    read first.
    """

    def __init__(self, recurrence: Recurrence, n_embd: int, dropout: float = 0.0, bias: bool = True) -> None:
        self.recurrence = recurrence
        self.output = Linear(recurrence.hidden_size, n_embd, bias)
        self.dropout = Dropout(dropout)

    def mix(self, x: Tensor, mask: Tensor | None, cache: RecurrentState) -> Tensor:
        """The states, as one map makes them: see `StateMixer`."""
        states = self.recurrence.run(x, cache.state, mask)
        cache.length, cache.state = cache.length + x.shape[1], states.detach()[:, -1]
        return self.dropout(self.output(states[..., : self.recurrence.hidden_size]))
