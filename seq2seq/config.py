"""The settings of the translation model."""

from __future__ import annotations

import reprlib
from dataclasses import asdict, dataclass, fields

from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.transformer import ACTIVATIONS


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of an encoder-decoder. Weights fit only a model with the same values (but for the last two).

    `transformer_base` and `transformer_big` are those of Vaswani et al. 2017, table 3.
    """

    vocab_size: int  # V: tokens of both languages together
    pad: int  # the ids of the three special tokens: filling, ...
    bos: int  # ... what every translation begins with, ...
    eos: int  # ... and what it ends with
    n_layer: int = 3  # blocks of the encoder, and as many of the decoder
    n_head: int = 4  # H
    n_embd: int = 256  # C
    n_inner: int = 0  # F, the width inside a feed-forward; 0: 4 C
    block_size: int = 256  # longest sentence, in tokens
    bias: bool = True
    norm_first: bool = True  # False: the norm after the sum, as in 2017
    activation: str = "relu"
    positions: str = "sinusoidal"  # or "learned"
    dropout: float = 0.1
    label_smoothing: float = 0.0

    @property
    def n_hidden(self) -> int:
        """F, with what 0 stands for."""
        return self.n_inner or 4 * self.n_embd

    @property
    def specials(self) -> dict[str, int]:
        """The special tokens that the model knows by their ids."""
        return {"<pad>": self.pad, "<bos>": self.bos, "<eos>": self.eos}

    def to_json(self) -> dict:
        """The settings as a dictionary."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict) -> Seq2SeqConfig:
        """The settings that a checkpoint holds, checked.

        Raises: CheckpointError if a field is missing, unknown, or of a wrong type or range.
        """
        own = {field.name: field.type for field in fields(Seq2SeqConfig)}
        if data.keys() != own.keys():
            raise CheckpointError(f"the model's settings are {sorted(data)}, expected {sorted(own)}")
        for name, kind in own.items():
            value, lowest = data[name], 0 if name in ("pad", "bos", "eos", "n_inner") else 1
            right = type(value).__name__ == kind or (kind == "float" and type(value) is int)
            if kind == "float" and right:
                right = 0 <= value < 1
            if not right or (kind == "int" and not lowest <= value <= 10_000_000):
                raise CheckpointError(f"the model's setting {name} cannot be {reprlib.repr(value)}")
        specials = {data["pad"], data["bos"], data["eos"]}
        fits = len(specials) == 3 and max(specials) < data["vocab_size"] and data["n_embd"] % data["n_head"] == 0
        if not fits or data["positions"] not in ("learned", "sinusoidal") or data["activation"] not in ACTIVATIONS:
            raise CheckpointError(f"the model's settings do not fit together: {data}")
        return Seq2SeqConfig(**data)

    def num_parameters(self) -> int:
        """How many numbers such a model learns, without making one."""
        c, f, biases = self.n_embd, self.n_hidden, int(self.bias)
        norm = c * (1 + biases)
        attention = 4 * (c * c + biases * c)
        feed_forward = 2 * c * f + biases * (c + f)
        encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
        ends = 2 * norm if self.norm_first else 0
        positions = 2 * self.block_size * c if self.positions == "learned" else 0
        return self.vocab_size * c + positions + self.n_layer * (encoder + decoder) + ends

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products with which one target token is learned.

        Counted as in `GPTConfig.flops_per_token`, with a source token for every target token, and without the
        products of attention, which are small for sentences.
        """
        c, f = self.n_embd, self.n_hidden
        encoder, decoder = 4 * c * c + 2 * c * f, 8 * c * c + 2 * c * f
        return 3 * 2 * (self.n_layer * (encoder + decoder) + c * self.vocab_size)

    def activations(self, batch_tokens: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass: see `GPTConfig.activations`."""
        c, f = self.n_embd, self.n_hidden
        per_target = self.n_layer * (20 * c + 3 * f) + 2 * self.vocab_size
        return batch_tokens // 2 * (self.n_layer * (12 * c + 3 * f) + per_target)


def transformer_base(vocab_size: int = 37000, pad: int = 0, bos: int = 1, eos: int = 2) -> Seq2SeqConfig:
    """The base model of the paper: 63 million parameters with its shared vocabulary of 37,000.

    >>> f"{transformer_base().num_parameters() / 1e6:.1f} M, {transformer_big().num_parameters() / 1e6:.1f} M"
    '63.1 M, 214.2 M'
    """
    return _paper(vocab_size, pad, bos, eos, n_head=8, n_embd=512, dropout=0.1)


def transformer_big(vocab_size: int = 37000, pad: int = 0, bos: int = 1, eos: int = 2) -> Seq2SeqConfig:
    """The big model of the paper."""
    return _paper(vocab_size, pad, bos, eos, n_head=16, n_embd=1024, dropout=0.3)


def _paper(vocab_size: int, pad: int, bos: int, eos: int, n_head: int, n_embd: int, dropout: float) -> Seq2SeqConfig:
    """What both have in common: six layers, the norm after the sum, ReLU, label smoothing."""
    return Seq2SeqConfig(
        vocab_size,
        pad,
        bos,
        eos,
        n_layer=6,
        n_head=n_head,
        n_embd=n_embd,
        norm_first=False,
        dropout=dropout,
        label_smoothing=0.1,
    )
