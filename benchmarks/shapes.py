"""The models that are timed, and the batches that both sides train on.

The batches are synthetic: the time of a step does not depend on the content of the text. As in a text, few tokens are
frequent and many are rare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpt.config import GPTConfig, GPTOptions
from gpt.data import Batch
from gpt.model import GPT
from seq2seq.config import Seq2SeqConfig
from seq2seq.model import Seq2Seq
from seq2seq.options import Seq2SeqOptions
from tinygrad_lite.cli.options import build, find_preset, read_preset
from tinygrad_lite.device import keyed_rng
from tinygrad_lite.tensor import Tensor

PRESETS = Path(__file__).parent.parent / "presets"
BATCHES = 8  # different ones, used in turn
PAIRS, LONGEST = 64, 16  # sentence pairs of a translation batch on a CPU, and the tokens of the longest sentence
SPECIALS = {"<pad>": 0, "<bos>": 1, "<eos>": 2}


@dataclass(frozen=True)
class Shape:
    """One model and its training batch.

    Attributes:
        options: settings of the model and of the optimizer.
        vocab_size: V.
        tokens: the length T of a training sequence, at most block_size; of a translation batch the longest.
        pairs: sentence pairs of a translation batch.
    """

    options: GPTOptions | Seq2SeqOptions
    vocab_size: int
    tokens: int
    pairs: int = PAIRS

    @property
    def config(self) -> GPTConfig | Seq2SeqConfig:
        """The model's settings."""
        return self.options.model_config(self.vocab_size, SPECIALS)

    @property
    def blueprint(self) -> GPT | Seq2Seq:
        """The model with shapes only."""
        return (Seq2Seq if self.translates else GPT).blueprint(self.config)

    def batches(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The training batches: ids and targets (B, T), or source (B, S) and target (B, T + 1)."""
        return [(made_up_pairs if self.translates else made_up_windows)(self, i) for i in range(BATCHES)]

    @property
    def target_tokens(self) -> int:
        """The tokens that one batch learns to predict, with padding."""
        return self.tokens * (self.pairs if self.translates else self.options.batch_size)

    @property
    def is_modern(self) -> bool:
        """Whether it is a GPT with the parts of the preset `goethe`, not GPT-2's."""
        return not self.translates and self.options.optimizer == "muon"

    @property
    def translates(self) -> bool:
        """Whether it is the translation model."""
        return isinstance(self.options, Seq2SeqOptions)


class MadeUpTask:
    """The batches of a shape as a Task (training/model_spec.py), with the methods that are needed here."""

    def __init__(self, shape: Shape) -> None:
        self.arrays, self.ignored = shape.batches(), SPECIALS["<pad>"] if shape.translates else None

    def target_tokens(self, step: int) -> int:
        """The number of tokens that an update learns to predict."""
        return self._learned(self.arrays[step % BATCHES][1])

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        """A process's rows of the one batch of an update, with its share of the target tokens."""
        first, second = (part[rank::size] for part in self.arrays[step % BATCHES])
        yield (Tensor(first), Tensor(second)), self._learned(second) / self.target_tokens(step)

    def _learned(self, targets: np.ndarray) -> int:
        return targets.size if self.ignored is None else np.count_nonzero(targets[:, 1:] != self.ignored)


def made_up_ids(rng: np.random.Generator, first: int, vocab_size: int, size: tuple[int, ...]) -> np.ndarray:
    """Token ids from `first` on, lower ones more frequent: half of them fall into the lowest eighth."""
    return first + ((vocab_size - first) * rng.random(size) ** 3).astype(np.int64)


def made_up_windows(shape: Shape, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and targets (B, T): the targets are the ids shifted by one."""
    rng = keyed_rng(shape.options.seed, "benchmark", number)
    windows = made_up_ids(rng, 0, shape.vocab_size, (shape.options.batch_size, shape.tokens + 1))
    return windows[:, :-1], windows[:, 1:]


def made_up_pairs(shape: Shape, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Source (B, S) and target (B, T + 1) of similar lengths, the target from <bos> to <eos>; padded at the end.

    The shortest sentences are three quarters as long as the longest.
    """
    pairs, longest = shape.pairs, shape.tokens
    rng = keyed_rng(shape.options.seed, "benchmark", number)
    sides = []
    for begins in (False, True):
        lengths = rng.integers(longest * 3 // 4, longest, (pairs, 1), endpoint=True)
        lengths[0] = longest  # so that all batches are of one size
        ids = made_up_ids(rng, len(SPECIALS), shape.vocab_size, (pairs, longest + begins))
        ids[np.arange(longest + begins) >= lengths + begins] = SPECIALS["<pad>"]
        if begins:
            ids[:, 0] = SPECIALS["<bos>"]
            ids[np.arange(pairs), lengths[:, 0]] = SPECIALS["<eos>"]
        sides.append(ids)
    return tuple(sides)


def preset(kind: type[GPTOptions | Seq2SeqOptions], name: str) -> GPTOptions | Seq2SeqOptions:
    """The settings of a preset."""
    values = read_preset(find_preset(PRESETS, name))
    values.pop("family", None)
    return build(kind, (f"preset {name}", values))


BABY = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 8}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "batch_size": 1}
GPT2 |= {"bias": True, "activation": "gelu_tanh", "learning_rate": 3e-4}
VOCABULARY = 84  # the 83 characters of the text that the default preset learns from, and the unknown one

SMALL = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12}
# One size of the small shape is varied at a time.
SCALES = {"block_size": (32, 64, 128, 256, 512), "n_embd": (64, 128, 256, 512), "batch_size": (2, 6, 12, 24, 48)}

GOETHE = preset(GPTOptions, "goethe")
GOETHE_SIZES = {name: getattr(GOETHE, name) for name in SMALL}

SHAPES = {
    "small": Shape(GPTOptions(**SMALL), VOCABULARY, SMALL["block_size"]),
    "baby": Shape(GPTOptions(**BABY), VOCABULARY, 256),
    "baby-dropout": Shape(GPTOptions(**BABY, dropout=0.2), VOCABULARY, 256),
    "gpt2": Shape(GPTOptions(**GPT2), 50257, 256),
    "baby-recompute": Shape(GPTOptions(**BABY, recompute=True), VOCABULARY, 256),
    "gpt2-recompute": Shape(GPTOptions(**GPT2, recompute=True), 50257, 256),
    "translation": Shape(preset(Seq2SeqOptions, "translate-de-en"), 6000, LONGEST),
    "goethe": Shape(GOETHE, GOETHE.vocab_size, GOETHE.block_size),
    "goethe-gpt2": Shape(GPTOptions(**GOETHE_SIZES), GOETHE.vocab_size, GOETHE.block_size),  # GPT-2's parts
    "goethe-no-dropout": Shape(replace(GOETHE, dropout=0.0), GOETHE.vocab_size, GOETHE.block_size),
}


def scaled(measure: str, value: int) -> str:
    """The name of the shape that differs from the small one in this size."""
    return f"{measure}-{value}"


for measure, values in SCALES.items():
    for value in values:
        settings = SMALL | {measure: value}
        SHAPES[scaled(measure, value)] = Shape(GPTOptions(**settings), VOCABULARY, settings["block_size"])

# For a GPU. The base Transformer of Vaswani et al. 2017, table 3, with about half of the paper's batch of 25,000 source
# and 25,000 target tokens: the same number as in a step of GPT-2 here.
BASE = {"n_layer": 6, "n_head": 8, "n_embd": 512, "norm_first": False, "dropout": 0.1}
GPU_BABY, GPU_GPT2 = GPTOptions(**BABY | {"batch_size": 64}), GPTOptions(**GPT2 | {"batch_size": 12})
GPU_SHAPES = {
    "baby": Shape(GPU_BABY, 65, 256),
    "baby-dropout": Shape(replace(GPU_BABY, dropout=0.2), 65, 256),
    "gpt2": Shape(GPU_GPT2, 50257, 1024),
    "translation": Shape(Seq2SeqOptions(**BASE), 37000, 32, pairs=384),
}
# The same models with tiny sizes, only to check that everything runs.
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 32}
QUICK_SHAPES = {
    name: replace(
        shape,
        options=replace(shape.options, **TINY, block_size=16, **({} if shape.translates else {"batch_size": 2})),
        vocab_size=70,
        tokens=8,
        pairs=3,
    )
    for name, shape in GPU_SHAPES.items()
}
