"""What a training run of the translation model can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from seq2seq.config import Seq2SeqConfig
from seq2seq.toys import TOYS
from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.cli.options import answers, option
from tinygrad_lite.corpora.pairs import PARALLEL_CORPORA, from_cache
from tinygrad_lite.training.options import BATCH_NAMES, DATA_NAMES, OTHER_NAMES, TrainOptions
from tinygrad_lite.transformer import ACTIVATIONS

DATASETS = (*PARALLEL_CORPORA, *TOYS)
TOKENIZERS = ("bpe", "char", "byte")


@dataclass
class Seq2SeqOptions(TrainOptions):
    """Everything that `train.py` can be asked for when it trains a translation model."""

    dataset: str = option("everyday", "pairs to learn from, by name", choices=DATASETS, group="data")
    pairs: str = option(
        "", "file to learn from instead of dataset: source TAB target in each line", is_path=True, group="data"
    )
    src: str = option("", "or a file with a source sentence in each line, ...", is_path=True, group="data")
    tgt: str = option("", "... and one with their translations, line by line", is_path=True, group="data")
    val_src: str = option("", "held-out source sentences; none: some pairs are held out", is_path=True, group="data")
    val_tgt: str = option("", "their translations", is_path=True, group="data")
    swap: bool = option(False, "the other direction: English to German, target to source", group="data")
    held_out: int = option(1000, "pairs to hold out, at most a tenth of all", unit="pairs", low=1, group="data")
    toy_size: int = option(20_000, "pairs to make of a toy task", unit="pairs", low=20, high=10_000_000, group="data")
    tokenizer: str = option("bpe", "what a token is, in both languages", choices=TOKENIZERS, group="data")
    vocab_size: int = option(6000, "size of a learned vocabulary", unit="tokens", low=2, high=1_000_000, group="data")

    n_layer: int = option(3, "blocks of the encoder, and as many of the decoder", low=1, high=1000, group="model")
    n_head: int = option(4, "attention heads per block", low=1, group="model")
    n_embd: int = option(256, "width of the model; a multiple of n_head", low=1, high=1_000_000, group="model")
    n_inner: int = option(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000, group="model")
    block_size: int = option(256, "longest sentence", unit="tokens", low=4, high=1_000_000, group="model")
    dropout: float = option(0.1, "probability of dropping an element in training", low=0.0, below=1.0, group="model")
    bias: bool = option(True, "whether linear maps and norms have a bias", group="model")
    norm_first: bool = option(True, "norm before each part of a block; false: after it, as in 2017", group="model")
    activation: str = option("relu", "non-linearity of the feed-forward", choices=tuple(ACTIVATIONS), group="model")
    positions: str = option(
        "sinusoidal", "how a token knows its place", choices=("sinusoidal", "learned"), group="model"
    )

    batch_tokens: int = option(
        2500, "source and target tokens of a micro-step, with padding", unit="tokens", low=8, group="training"
    )
    label_smoothing: float = option(
        0.1, "share of the target's probability spread over all tokens", low=0.0, below=1.0, group="training"
    )
    beta2: float = option(0.98, "decay of the squared gradient's running mean", low=0.0, below=1.0, group="training")
    weight_decay: float = option(0.01, "weight decay of the matrices", low=0.0, group="training")
    eval_pairs: int = option(
        500, "held-out pairs to translate at each evaluation", unit="pairs", low=0, group="evaluation"
    )
    translations: int = option(3, "translations to show at each evaluation", low=0, group="evaluation")

    BATCH: ClassVar[str] = "batch_tokens"  # the option that says how much is computed at once
    FILES: ClassVar[tuple[str, ...]] = ("pairs", "src", "tgt", "val_src", "val_tgt")
    HINTS: ClassVar[dict[str, str]] = OTHER_NAMES | answers(
        {
            "--batch_tokens": f"{BATCH_NAMES} batch_size max_tokens",
            "--pairs": DATA_NAMES,
            "--src": "source src_file source_file train_src",
            "--tgt": "target trg tgt_file target_file train_tgt",
            "--val_src": "valid_src dev_src",
            "--val_tgt": "valid_tgt dev_tgt",
            "--label_smoothing": "smoothing label_smoothing_factor",
        }
    )

    def check(self, learns_tokenizer: bool) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        Raises: OptionError.
        """
        self.model_config(3)
        for one, other in (("src", "tgt"), ("val_src", "val_tgt")):
            if bool(getattr(self, one)) != bool(getattr(self, other)):
                there, missing = (one, other) if getattr(self, one) else (other, one)
                raise OptionError(f"--{there} needs --{missing}: sentences and translations come in two files")
        if self.pairs and self.src:
            raise OptionError("--pairs and --src are both given: which sentences are to be learned?")

    def is_at_hand(self) -> bool:
        """Whether the pairs can be read without a network."""
        if self.pairs or self.src or self.dataset in TOYS:
            return True
        return from_cache(self.dataset, say=lambda line: None) is not None

    def most_workers(self) -> int:
        """How many processes there is work for: each should have some pairs of most batches."""
        return max(1, self.batch_tokens // 100)

    def sizes(self, config: Seq2SeqConfig) -> tuple[int, int, str]:
        """Of a run with such a model: numbers kept for a backward pass, tokens of a step, and how these come about."""
        micro_steps = self.gradient_accumulation_steps
        factors = [f"{micro_steps} micro-steps"] if micro_steps > 1 else []
        factors += [f"{self.batch_tokens} tokens of source and target"]
        return config.activations(self.batch_tokens), self.batch_tokens * micro_steps, " x ".join(factors)

    def model_config(self, vocab_size: int, specials: Mapping[str, int] | None = None) -> Seq2SeqConfig:
        """The model's settings for a vocabulary of this size with these special tokens.

        Raises: OptionError if n_embd is no multiple of n_head.
        """
        if self.n_embd % self.n_head:
            raise OptionError(
                f"--n_embd {self.n_embd} is no multiple of --n_head {self.n_head}: every head needs the same width"
            )
        ids = specials or {"<pad>": 0, "<bos>": 1, "<eos>": 2}  # a stand-in, to count parameters
        return Seq2SeqConfig(
            vocab_size,
            pad=ids["<pad>"],
            bos=ids["<bos>"],
            eos=ids["<eos>"],
            n_layer=self.n_layer,
            n_head=self.n_head,
            n_embd=self.n_embd,
            n_inner=self.n_inner,
            block_size=self.block_size,
            bias=self.bias,
            norm_first=self.norm_first,
            activation=self.activation,
            positions=self.positions,
            dropout=self.dropout,
            label_smoothing=self.label_smoothing,
        )
