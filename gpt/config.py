"""The GPT's settings: what the model is (`GPTConfig`) and what a training run can be asked for (`GPTOptions`)."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import ClassVar

from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.cli.options import answers, option
from tinygrad_lite.corpora import pairs as parallel
from tinygrad_lite.corpora.pictures import PICTURES, are_cached
from tinygrad_lite.corpora.texts import CORPORA, from_cache
from tinygrad_lite.functional.attention import ROW_BLOCK
from tinygrad_lite.tokenizers.base import UNKNOWN
from tinygrad_lite.training.model_config import MAX_VOCAB_SIZE, ModelConfig, model_options
from tinygrad_lite.training.options import BATCH_NAMES, DATA_NAMES, OTHER_NAMES, TrainOptions
from tinygrad_lite.transformer import ACTIVATIONS

TOKENIZERS = ("char", "byte", "bpe", "bpe-w", "word", "pixels", "hf")


@dataclass(frozen=True)
class GPTConfig(ModelConfig):
    """The settings of a GPT. A new setting needs only a field here: see `training/model_config.py`."""

    vocab_size: int = option(MISSING, "V, tokens of the vocabulary", low=1, high=MAX_VOCAB_SIZE)
    block_size: int = option(64, "longest context", unit="tokens", low=1, high=10_000_000, group="model")
    n_layer: int = option(4, "blocks", low=1, high=1000, group="model")
    n_head: int = option(4, "attention heads per block", low=1, group="model")
    n_embd: int = option(128, "width of the model; a multiple of n_head", low=1, high=1_000_000, group="model")
    dropout: float = option(0.0, "probability of dropping an element in training", low=0.0, below=1.0, group="training")
    bias: bool = option(False, "whether linear maps and norms have a bias", group="model")
    positions: str = option(
        "learned", "how positions are encoded", choices=("learned", "sinusoidal", "rotary", "none"), group="model"
    )
    activation: str = option("gelu", "non-linearity of the feed-forward part", choices=ACTIVATIONS, group="model")
    norm_eps: float = option(1e-5, "keeps a norm from dividing by 0", above=0.0, below=1.0, group="model")
    n_inner: int = option(0, "width inside the feed-forward part; 0: 4 n_embd", low=0, high=10_000_000, group="model")
    norm: str = option("layernorm", "what every norm is", choices=("layernorm", "rmsnorm"), group="model")
    norm_weight: bool = option(True, "whether norms have a learned gain; false needs rmsnorm", group="model")
    rope_theta: float = option(
        10000.0, "base of the frequencies of rotary positions", above=0.0, high=1e12, group="model"
    )
    rope_scaling: str | None = option(
        None,
        "Llama 3's lowering of these frequencies: FACTOR,LOW,HIGH,LENGTH, as in 32,1,4,8192; none: as they are",
        group="model",
    )
    qk_norm: bool = option(False, "RMS norm of each head's queries and keys", group="model")
    attention_scale: float | None = option(
        None, "factor of attention's scores; none: 1 / sqrt(width of a head)", above=0.0, high=1e6, group="model"
    )
    n_kv_head: int | None = option(
        None, "heads of keys and values, which n_head is a multiple of; none: n_head", low=1, group="model"
    )
    head_dim: int | None = option(None, "width of a head; none: n_embd / n_head", low=1, high=1_000_000, group="model")
    norm_first: bool = option(True, "norm before each part of a block; false: after it, as in 2017", group="model")
    residual: bool = option(True, "add the input of each part of a block to its output", group="model")
    recompute: bool = option(
        False,
        "keep only each block's input for the backward pass, which computes the rest again: less memory, more time",
        group="training",
    )
    zero_init: bool = option(False, "begin with residual projections of 0", group="training")
    tie_weights: bool = option(True, "one matrix for tokens at the input and at the output", group="model")

    ALWAYS: ClassVar[frozenset[str]] = frozenset(
        ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "dropout", "bias", "positions")
    )

    @property
    def rope_scaling_numbers(self) -> tuple[float, ...]:
        """The numbers of rope_scaling; none if it is not set. ValueError if they are not four, or wrong ones."""
        numbers = tuple(float(word) for word in (self.rope_scaling or "").split(",") if self.rope_scaling)
        if self.rope_scaling is not None:
            factor, low, high, length = numbers
            if not (1 <= factor < math.inf and 0 < low < high < math.inf and 1 <= length < math.inf):
                raise ValueError("out of range")
        return numbers

    def misfit(self, mark: str = "") -> str:
        """Which settings contradict each other, in words; empty if none do."""
        if self.n_head % (self.n_kv_head or 1):
            return (
                f"{mark}n_head {self.n_head} is no multiple of {mark}n_kv_head {self.n_kv_head}: "
                "every head of keys and values serves the same number of queries"
            )
        if not self.norm_weight and self.norm != "rmsnorm":
            return f"a norm without a gain is {mark}norm rmsnorm, not {self.norm}"
        if misfit := super().misfit(mark):
            return misfit
        try:
            _ = self.rope_scaling_numbers
        except ValueError:
            return (
                f"{mark}rope_scaling {self.rope_scaling} is not FACTOR,LOW,HIGH,LENGTH with FACTOR and LENGTH of at "
                "least 1 and 0 < LOW < HIGH"
            )
        if self.positions == "rotary" and self.head_width % 2:
            return f"{mark}positions rotary turns pairs of numbers, but a head has {self.head_width}, an odd number"
        return ""

    def activations(self, batch_size: int) -> int:
        """About how many numbers a training micro-step keeps for its backward pass (fused operations).

        Only what a derivative needs is kept. Per token and block: the outputs of two norms 2 C, queries, keys and
        values 3 H D, attention's output H D, the feed-forward's hidden layer with the slope of GELU 2 F, and for each
        head the attention weights that causality leaves: of T a little more than half, as blocks of rows see them.
        Dropout keeps a byte for each element that it may drop. With `recompute`, every block keeps its input, and only
        one at a time the rest.
        """
        c, t, heads = self.n_embd, self.block_size, self.n_head * self.head_width
        attention = 4 * heads + self.n_head * (t + min(t, ROW_BLOCK)) // 2
        if self.qk_norm:
            attention += heads + self.cached_width
        masks = (2 * c + self.n_head * t) // 4 if self.dropout else 0
        blocks = self.of_all_blocks(self.n_layer, 2 * c + attention + self.kept_hidden + masks)
        return batch_size * self.block_size * (blocks + c + self.vocab_size)


@dataclass
class GPTOptions(model_options(GPTConfig), TrainOptions):
    """The options of `train.py` for training a GPT."""

    dataset: str = option(
        "goethe",
        "text to learn from, by name: "
        + ", ".join(CORPORA)
        + "; or pictures: "
        + ", ".join(PICTURES)
        + "; or, with separator, pairs: "
        + ", ".join(parallel.PARALLEL_CORPORA),
        group="data",
    )
    pairs: str = option(
        "",
        "or a file of texts and answers: source TAB target in each line; needs separator",
        is_path=True,
        group="data",
    )
    separator: str = option(
        "", "of pairs: the special token between source and target, such as <to-en>; none: a text", group="data"
    )
    swap: bool = option(False, "of pairs: the opposite direction, target to source", group="data")
    held_out: int = option(1000, "of pairs: how many to hold out, at most a tenth", unit="pairs", low=1, group="data")
    text: list[str] = option([], "files to learn from, any UTF-8 text, instead of dataset", is_path=True, group="data")
    tokenizer: str = option(
        "char",
        "what a token is (bpe-w: with an end-of-word mark; pixels: shades of pictures; hf: only what pretrained "
        "weights bring along)",
        choices=TOKENIZERS,
        group="data",
    )
    vocab_size: int = option(
        1024,
        "size of a learned vocabulary: bpe, bpe-w, word; of pixels: shades",
        unit="tokens",
        low=2,
        high=1_000_000,
        group="data",
    )
    data_order: str = option(
        "random",
        "windows at random places of the text (random), or passes over the whole text in random order (epochs)",
        choices=("random", "epochs"),
        group="data",
    )

    replay: str | None = option(
        None,
        "text that a share of every batch is taken from, such as the one that the weights of --init_from come from",
        choices=[*CORPORA],
        group="data",
    )
    replay_share: float = option(0.1, "this share, with --replay", above=0.0, below=1.0, group="data")

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
    eval_pairs: int = option(
        200, "of pairs: how many to translate at each evaluation", unit="pairs", low=0, group="evaluation"
    )

    DATASETS: ClassVar[tuple[str, ...]] = (*CORPORA, *PICTURES, *parallel.PARALLEL_CORPORA)
    BATCH: ClassVar[str] = "batch_size"  # the option that says how much is computed at once
    COUNTED: ClassVar[tuple[int, str]] = (1, "token")  # the tokens for which flops_per_token counts, and their name
    FILES: ClassVar[tuple[str, ...]] = ("text", "pairs")  # options that are paths, which no checkpoint holds
    HINTS: ClassVar[dict[str, str]] = OTHER_NAMES | answers(
        {
            "--batch_size": f"{BATCH_NAMES} batch_tokens",
            "--text": DATA_NAMES,
            "--data_order": "shuffle sampler",
            "--eval_iters": "eval_batches val_iters",
            "--positions rotary": "rope rotary use_rope",
            "--n_kv_head": "num_key_value_heads n_kv_heads kv_heads",
            "--tie_weights": "tie_word_embeddings tie_embeddings weight_tying",
        }
    )

    @property
    def batch_tokens(self) -> int:
        """The maximum number of tokens in a batch of pairs, with padding."""
        return self.batch_size * self.block_size

    def check_pairs(self) -> None:
        """Refuse pairs without a separator, and the other way round.

        Raises: OptionError.
        """
        named = f"--pairs {self.pairs}" if self.pairs else f"--dataset {self.dataset}"
        has_pairs = bool(self.pairs) or (not self.text and self.dataset in parallel.PARALLEL_CORPORA)
        if self.pairs and self.text:
            raise OptionError("--pairs and --text cannot be combined: a GPT learns from pairs, or from a text")
        if has_pairs and not self.separator:
            raise OptionError(
                f"{named} belongs to the translation model: use python train.py translate-de-en {named}; a GPT learns "
                f"from pairs too, with a token between their sides: python train.py gpt-translate {named}"
            )
        if self.separator and not has_pairs:
            raise OptionError(
                f"--separator {self.separator} stands between the sides of pairs: add --pairs FILE.tsv, or name pairs "
                f"with --dataset, such as libreoffice-help"
            )
        if self.separator and self.replay:
            raise OptionError(f"--replay {self.replay} mixes texts, but with --separator there are pairs: omit one")
        if self.separator and not re.fullmatch(r"<[\w-]{1,40}>", self.separator):
            raise OptionError(f"--separator {self.separator}: write a name between < and >, such as <to-en>")
        if self.separator in ("<end>", UNKNOWN):
            raise OptionError(f"--separator {self.separator} has a meaning already: choose another name")

    def check(self, learns_tokenizer: bool) -> None:
        """Refuse what cannot be computed, before any text is fetched.

        Raises: OptionError.
        """
        self.check_pairs()
        named = Path(self.dataset)
        if not self.text and (named.name != self.dataset or named.is_file()):
            # A text of the user's own: --text keeps its path out of the checkpoint, which may be given away.
            self.text, self.dataset = [self.dataset], GPTOptions.dataset
        if learns_tokenizer:
            self.model_config(2)
            if (self.tokenizer == "pixels") != (not self.text and self.dataset in PICTURES):
                raise OptionError("--tokenizer pixels and --dataset digits or other pictures belong together")
            if self.replay and self.tokenizer == "pixels":
                raise OptionError(f"--replay {self.replay} is a text, but --dataset {self.dataset} are pictures")
            if self.tokenizer == "hf":
                raise OptionError(
                    "--tokenizer hf: such a tokenizer comes with pretrained weights (--init_from FOLDER); to learn "
                    "one, take bpe"
                )

    def is_at_hand(self) -> bool:
        """Whether the text can be read, or be refused, without a network."""
        if self.separator:
            return bool(self.pairs) or parallel.from_cache(self.dataset, say=lambda line: None) is not None
        if self.dataset in PICTURES and not self.text:
            return are_cached(self.dataset)
        names = [*([] if self.text else [self.dataset]), *([self.replay] if self.replay else [])]
        return all(
            name not in CORPORA or Path(f"{name}.txt").is_file() or from_cache(name, say=lambda line: None)
            for name in names
        )

    def max_workers(self) -> int:
        """How many processes there is work for: each needs a row of the batch."""
        return self.batch_size

    def sizes(self, config: GPTConfig) -> tuple[int, int, str]:
        """Of a run with such a model: numbers kept for a backward pass, tokens of a step, and how these come about."""
        micro_steps = self.gradient_accumulation_steps
        factors = [f"{micro_steps} micro-steps"] if micro_steps > 1 else []
        factors += [f"{self.batch_size} sequences", f"{self.block_size} tokens"]
        tokens = self.batch_size * micro_steps * self.block_size
        return config.activations(self.batch_size), tokens, " x ".join(factors)
