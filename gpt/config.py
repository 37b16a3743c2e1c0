"""The GPT's settings: what the model is (`GPTConfig`) and what a training run can be asked for (`GPTOptions`)."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

from tinygrad_lite.cli.errors import CheckpointError, OptionError
from tinygrad_lite.cli.options import answers, option
from tinygrad_lite.corpora.texts import CORPORA, from_cache
from tinygrad_lite.functional.attention import ROW_BLOCK
from tinygrad_lite.training.options import BATCH_NAMES, DATA_NAMES, OTHER_NAMES, TrainOptions

ACTIVATIONS = ("gelu", "gelu_tanh")
TOKENIZERS = ("char", "byte", "bpe", "bpe-w", "word", "hf")


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
    # What GPT-2's own weights need. Checkpoints of the time before have none of these fields.
    activation: str = "gelu"  # or "gelu_tanh", its approximation
    norm_eps: float = 1e-5  # keeps a norm from dividing by 0
    n_inner: int = 0  # F, the width inside a feed-forward; 0: 4 C

    @property
    def n_hidden(self) -> int:
        """F, with what 0 stands for."""
        return self.n_inner or 4 * self.n_embd

    @property
    def specials(self) -> dict[str, int]:
        """The special tokens that the model knows by their ids: none."""
        return {}

    def to_json(self) -> dict:
        """The settings as a dictionary."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict) -> GPTConfig:
        """The settings that a checkpoint holds, checked.

        Raises: CheckpointError if a field is missing, unknown, or of a wrong type or range.
        """
        own = {field.name: field.type for field in fields(GPTConfig)}
        data = {"activation": "gelu", "norm_eps": 1e-5, "n_inner": 0} | data
        if data.keys() != own.keys():
            raise CheckpointError(f"the model's settings are {sorted(data)}, expected {sorted(own)}")
        for name, kind in own.items():
            value, lowest = data[name], 0 if name == "n_inner" else 1
            right = type(value).__name__ == kind or (kind == "float" and type(value) is int)
            if kind == "float" and right:
                right = 0 <= value < 1
            if not right or (kind == "int" and not lowest <= value <= 10_000_000):
                raise CheckpointError(f"the model's setting {name} cannot be {reprlib.repr(value)}")
        if data["activation"] not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise CheckpointError(f"the model's setting activation cannot be {data['activation']!r}, known are {known}")
        if not 0 < data["norm_eps"] < 1:
            raise CheckpointError(
                f"the model's setting norm_eps cannot be {data['norm_eps']!r}: it lies between 0 and 1"
            )
        if data["n_embd"] % data["n_head"] or data["positions"] not in ("learned", "sinusoidal"):
            raise CheckpointError(f"the model's settings do not fit together: {data}")
        return GPTConfig(**data)

    def num_parameters(self) -> int:
        """How many numbers such a model learns, without making one."""
        c, f, norm = self.n_embd, self.n_hidden, self.n_embd * (2 if self.bias else 1)
        block = 4 * c * c + 2 * c * f + 2 * norm + (5 * c + f if self.bias else 0)  # attention, feed-forward, norms
        positions = self.block_size * c if self.positions == "learned" else 0
        return self.vocab_size * c + positions + self.n_layer * block + norm

    def flops_per_token(self) -> int:
        """Floating-point operations of the matrix products with which one token is learned.

        Forward, a map of (C, F) costs a token C F multiplications and as many additions, and attention 2 C T of
        either in each block (scores, and the weighted sum of values). Backward costs twice that: once for the
        gradient of the input, once for that of the weights. Norms, softmax, GELU and the optimizer are not counted.

        Reference: Chowdhery et al. 2022 (arXiv:2204.02311), appendix B.
        """
        c, f = self.n_embd, self.n_hidden
        block = 4 * c * c + 2 * c * f + 2 * c * self.block_size
        return 3 * 2 * (self.n_layer * block + c * self.vocab_size)

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass (fused operations).

        Per token and block: two norms (input and output) 4 C, queries, keys and values 3 C, attention's output and
        projection 2 C, two sums 2 C, the last projection C, the feed-forward's three F wide arrays 3 F, and for each
        head the attention weights that causality leaves: of T a little more than half, as blocks of rows see them.
        """
        c, t = self.n_embd, self.block_size
        weights = self.n_head * (t + min(t, ROW_BLOCK)) // 2
        per_token = self.n_layer * (12 * c + 3 * self.n_hidden + weights) + 4 * c + 2 * self.vocab_size
        return batch_size * self.block_size * per_token


@dataclass
class GPTOptions(TrainOptions):
    """Everything that `train.py` can be asked for when it trains a GPT."""

    dataset: str = option("goethe", "text to learn from, by name: goethe, faust, faust2, werther", group="data")
    text: list[str] = option([], "files to learn from, any UTF-8 text, instead of dataset", is_path=True, group="data")
    tokenizer: str = option(
        "char",
        "what a token is (bpe-w: with an end-of-word mark; hf: only what pretrained weights bring along)",
        choices=TOKENIZERS,
        group="data",
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
    activation: str = option("gelu", "non-linearity of the feed-forward part", choices=ACTIVATIONS, group="model")
    n_inner: int = option(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000, group="model")
    norm_eps: float = option(1e-5, "keeps a norm from dividing by 0", above=0.0, below=1.0, group="model")

    batch_size: int = option(12, "sequences per micro-step", unit="sequences", low=1, high=1_000_000, group="training")
    eval_iters: int = option(
        0,
        "windows of the held-out text to evaluate on, always the same; 0: all",
        unit="windows",
        low=0,
        group="evaluation",
    )
    sample_tokens: int = option(
        160, "length of the sample at each evaluation; 0: none", unit="tokens", low=0, group="evaluation"
    )

    BATCH: ClassVar[str] = "batch_size"  # the option that says how much is computed at once
    FILES: ClassVar[tuple[str, ...]] = ("text",)  # options that are paths, which no checkpoint holds
    HINTS: ClassVar[dict[str, str]] = OTHER_NAMES | answers(
        {"--batch_size": f"{BATCH_NAMES} batch_tokens", "--text": DATA_NAMES, "--eval_iters": "eval_batches val_iters"}
    )

    def check(self, learns_tokenizer: bool) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        Raises: OptionError.
        """
        named = Path(self.dataset)
        if not self.text and (named.name != self.dataset or named.is_file()):
            # A text of the user's own: --text keeps its path out of the checkpoint, which may be given away.
            self.text, self.dataset = [self.dataset], GPTOptions.dataset
        if learns_tokenizer:
            self.model_config(2)
            if self.tokenizer == "hf":
                raise OptionError(
                    "--tokenizer hf: such a tokenizer comes with pretrained weights (--init_from FOLDER); to learn "
                    "one, take bpe"
                )

    def is_at_hand(self) -> bool:
        """Whether the text can be read, or be refused, without a network."""
        if self.text or self.dataset not in CORPORA or Path(f"{self.dataset}.txt").is_file():
            return True
        return from_cache(self.dataset, say=lambda line: None) is not None

    def most_workers(self) -> int:
        """How many processes there is work for: each needs a row of the batch."""
        return self.batch_size

    def sizes(self, config: GPTConfig) -> tuple[int, int, str]:
        """Of a run with such a model: numbers kept for a backward pass, tokens of a step, and how these come about."""
        micro_steps = self.gradient_accumulation_steps
        factors = [f"{micro_steps} micro-steps"] if micro_steps > 1 else []
        factors += [f"{self.batch_size} sequences", f"{self.block_size} tokens"]
        tokens = self.batch_size * micro_steps * self.block_size
        return config.activations(self.batch_size), tokens, " x ".join(factors)

    def model_config(self, vocab_size: int, specials: Mapping[str, int] | None = None) -> GPTConfig:
        """The model's settings for a vocabulary of this size; a GPT has no use for special tokens.

        Raises: OptionError if n_embd is no multiple of n_head.
        """
        if self.n_embd % self.n_head:
            raise OptionError(
                f"--n_embd {self.n_embd} is no multiple of --n_head {self.n_head}: every head needs the same width"
            )
        own = {field.name for field in fields(GPTConfig)} - {"vocab_size"}
        return GPTConfig(vocab_size, **{name: getattr(self, name) for name in own})
