"""The GPT's settings: what the model is (`GPTConfig`) and what a training run can be asked for (`GPTOptions`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.options import option
from tinygrad_lite.training import TrainOptions

TOKENIZERS = ("char", "byte", "bpe", "bpe-w", "word")


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

    @staticmethod
    def from_json(data: dict) -> GPTConfig:
        """The settings that a checkpoint holds, checked.

        Raises: CheckpointError if a field is missing, unknown, or of a wrong type or range.
        """
        own = {field.name: field.type for field in fields(GPTConfig)}
        if data.keys() != own.keys():
            raise CheckpointError(f"the model's settings are {sorted(data)}, expected {sorted(own)}")
        for name, kind in own.items():
            value = data[name]
            right = type(value).__name__ == kind or (kind == "float" and type(value) is int)
            if not right or (kind == "int" and not 1 <= value <= 10_000_000):
                raise CheckpointError(f"the model's setting {name} cannot be {value!r}")
        if data["n_embd"] % data["n_head"] or data["positions"] not in ("learned", "sinusoidal"):
            raise CheckpointError(f"the model's settings do not fit together: {data}")
        return GPTConfig(**data)

    def num_parameters(self) -> int:
        """How many numbers such a model learns, without making one."""
        c, norm = self.n_embd, self.n_embd * (2 if self.bias else 1)
        block = 12 * c * c + 2 * norm + (9 * c if self.bias else 0)  # attention 4 C^2, feed-forward 8 C^2
        positions = self.block_size * c if self.positions == "learned" else 0
        return self.vocab_size * c + positions + self.n_layer * block + norm

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass (fused operations).

        Per token and block: two norms (input and output) 4 C, queries, keys and values 3 C, attention's output and
        projection 2 C, two sums 2 C, the last projection C, the feed-forward's three F = 4 C wide arrays 12 C, and
        the attention weights H T.
        """
        c = self.n_embd
        per_token = self.n_layer * (24 * c + self.n_head * self.block_size) + 4 * c + 2 * self.vocab_size
        return batch_size * self.block_size * per_token


@dataclass
class GPTOptions(TrainOptions):
    """Everything that `train.py` can be asked for when it trains a GPT."""

    dataset: str = option("goethe", "text to learn from, by name: goethe, faust, faust2, werther", group="data")
    text: list[str] = option([], "files to learn from instead, any UTF-8 text", unit="files", group="data")
    tokenizer: str = option(
        "char", "what a token is (bpe-w: with an end-of-word mark)", choices=TOKENIZERS, group="data"
    )
    vocab_size: int = option(
        1024, "size of a learned vocabulary: bpe, bpe-w, word", unit="tokens", low=2, high=1_000_000, group="data"
    )

    n_layer: int = option(4, "blocks", low=1, high=1000, group="model")
    n_head: int = option(4, "attention heads per block", low=1, group="model")
    n_embd: int = option(128, "width of the model; a multiple of n_head", low=1, high=1_000_000, group="model")
    block_size: int = option(64, "longest context", unit="tokens", low=1, high=10_000_000, group="model")
    dropout: float = option(0.0, "probability of dropping an element in training", low=0.0, below=1.0, group="model")
    bias: bool = option(False, "whether linear maps and norms have a bias", group="model")
    positions: str = option("learned", "how a token knows its place", choices=("learned", "sinusoidal"), group="model")

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
