"""The GPT's settings: what the model is (`GPTConfig`) and what a training run can be asked for (`GPTOptions`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tinygrad_lite.errors import OptionError
from tinygrad_lite.options import option
from tinygrad_lite.training import TrainOptions


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a GPT. Weights fit only a model with the same values (but for dropout)."""

    vocab_size: int  # V: tokens
    block_size: int = 64  # T: longest context, in tokens
    n_layer: int = 4
    n_head: int = 4  # H
    n_embd: int = 128  # C
    dropout: float = 0.0
    bias: bool = False
    positions: str = "learned"  # or "sinusoidal"

    def to_json(self) -> dict:
        """The settings as a dictionary."""
        return asdict(self)


@dataclass
class GPTOptions(TrainOptions):
    """Everything that `train.py` can be asked for when it trains a GPT."""

    dataset: str = option(
        "goethe", "text to learn from, by name: goethe, faust, faust2, werther", group="data"
    )
    text: list[str] = option([], "files to learn from instead, any UTF-8 text", unit="files", group="data")
    tokenizer: str = option("char", "what a token is", choices=("char", "bpe"), group="data")
    vocab_size: int = option(
        1024, "tokens of the bpe vocabulary", unit="tokens", low=257, high=1_000_000, group="data"
    )

    n_layer: int = option(4, "blocks", low=1, high=1000, group="model")
    n_head: int = option(4, "attention heads per block", low=1, group="model")
    n_embd: int = option(
        128, "width of the model; a multiple of n_head", low=1, high=1_000_000, group="model"
    )
    block_size: int = option(64, "longest context", unit="tokens", low=1, high=10_000_000, group="model")
    dropout: float = option(
        0.0, "probability of dropping an element in training", low=0.0, below=1.0, group="model"
    )
    bias: bool = option(False, "whether linear maps and norms have a bias", group="model")
    positions: str = option(
        "learned", "how a token knows its place", choices=("learned", "sinusoidal"), group="model"
    )

    def model_config(self, vocab_size: int) -> GPTConfig:
        """The model's settings for a vocabulary of this size.

        Raises: OptionError if n_embd is no multiple of n_head.
        """
        if self.n_embd % self.n_head:
            raise OptionError(
                f"--n_embd {self.n_embd} is no multiple of --n_head {self.n_head}: every head needs the same width"
            )
        return GPTConfig(
            vocab_size=vocab_size,
            block_size=self.block_size,
            n_layer=self.n_layer,
            n_head=self.n_head,
            n_embd=self.n_embd,
            dropout=self.dropout,
            bias=self.bias,
            positions=self.positions,
        )
