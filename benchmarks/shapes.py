"""The models that are timed, and the batches that both sides train on.

The batches are synthetic: the time of a step does not depend on the content of the text or of the pictures. As in a
text, few tokens are frequent and many are rare.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from extra.encoders.bert import Bert, MaskedBatch
from extra.encoders.options import BertOptions
from extra.encoders.pictures import ViTOptions
from extra.encoders.vit import PictureBatch, ViT
from extra.gpt.options import GPTOptions
from extra.seq2seq.options import Seq2SeqOptions
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.nn import Module
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.cli.options import build, find_preset, read_preset, values_of

BATCHES = 8  # different ones, used in turn
PAIRS, LONGEST = 64, 16  # sentence pairs of a translation batch on a CPU, and the tokens of the longest sentence
SPECIALS = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
BERT_SPECIALS = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3}
MODELS: dict[type, type[Module]] = {GPTOptions: GPT, Seq2SeqOptions: Seq2Seq, BertOptions: Bert, ViTOptions: ViT}
NAMED: dict[type, type] = {Bert: MaskedBatch, ViT: PictureBatch}  # the batches whose parts have names
Arrays = tuple[np.ndarray, ...]
Options = TypeVar("Options", GPTOptions, Seq2SeqOptions, BertOptions, ViTOptions)


@dataclass(frozen=True)
class Shape:
    """One model and its training batch.

    Attributes:
        options: settings of the model and of the optimizer.
        vocab_size: V.
        tokens: the length T of a training sequence, at most block_size; for a translation batch the longest; 1 for
            pictures, which have one label.
        pairs: sentence pairs of a translation batch.
    """

    options: GPTOptions | Seq2SeqOptions | BertOptions | ViTOptions
    vocab_size: int
    tokens: int
    pairs: int = PAIRS

    @property
    def config(self) -> ModelConfig:
        """The model's settings."""
        return self.options.model_config(self.vocab_size, SPECIALS | BERT_SPECIALS)

    @property
    def model(self) -> type[Module]:
        """The model's class."""
        return MODELS[type(self.options)]

    @property
    def blueprint(self) -> Module:
        """The model with shapes only."""
        return self.model.blueprint(self.config)

    def batches(self) -> list[Arrays]:
        """The training batches, each as arrays with a row per sequence or picture; the targets are the last array.

        Ids and targets (B, T); source (B, S) and target (B, T + 1); ids (B, T) with the places of hidden tokens and the
        tokens that were there, both (B, n); pictures (B, H, W, 1) and labels (B,).
        """
        return [MADE_UP[self.model](self, number) for number in range(BATCHES)]

    def arguments(self, rows: Arrays) -> Arrays:
        """The arguments of the model's loss, made from some rows of a batch."""
        return places_of_all(*rows) if self.model is Bert else rows

    @property
    def target_tokens(self) -> int:
        """The tokens that one batch of a GPT or of the translation model learns to predict, with padding."""
        return self.tokens * (self.pairs if self.translates else self.options.batch_size)

    @property
    def translates(self) -> bool:
        """Whether it is the translation model."""
        return self.model is Seq2Seq


class MadeUpTask:
    """The batches of a shape as a Task (training/family.py), with the methods that are needed here."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.arrays = shape, shape.batches()

    def target_tokens(self, step: int) -> int:
        """The number of tokens, or of labels, that an update learns to predict."""
        return self._learned(self.arrays[step % BATCHES][-1])

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Any, float]]:
        """A process's rows of the one batch of an update, with its share of the targets."""
        rows = tuple(part[rank::size] for part in self.arrays[step % BATCHES])
        tensors = map(Tensor, self.shape.arguments(rows))
        named = NAMED.get(self.shape.model)
        yield named(*tensors) if named else tuple(tensors), self._learned(rows[-1]) / self.target_tokens(step)

    def _learned(self, targets: np.ndarray) -> int:
        return np.count_nonzero(targets[:, 1:] != SPECIALS["<pad>"]) if self.shape.translates else targets.size


def made_up_ids(rng: np.random.Generator, first: int, vocab_size: int, size: tuple[int, ...]) -> np.ndarray:
    """Token ids from `first` on, lower ones more frequent: half of them fall in the lowest eighth."""
    return first + ((vocab_size - first) * rng.random(size) ** 3).astype(np.int64)


def made_up_windows(shape: Shape, number: int) -> Arrays:
    """Ids and targets (B, T): the targets are the ids shifted by one."""
    rng = keyed_rng(shape.options.seed, "benchmark", number)
    windows = made_up_ids(rng, 0, shape.vocab_size, (shape.options.batch_size, shape.tokens + 1))
    return windows[:, :-1], windows[:, 1:]


def made_up_pairs(shape: Shape, number: int) -> Arrays:
    """Source (B, S) and target (B, T + 1) of similar lengths, the target from <bos> to <eos>; padded at the end.

    The shortest sentences are three quarters as long as the longest.
    """
    pairs, longest = shape.pairs, shape.tokens
    rng = keyed_rng(shape.options.seed, "benchmark", number)
    sides = []
    for begins in (False, True):
        lengths = rng.integers(longest * 3 // 4, longest, (pairs, 1), endpoint=True)
        lengths[0] = longest  # so that all batches have the same size
        ids = made_up_ids(rng, len(SPECIALS), shape.vocab_size, (pairs, longest + begins))
        ids[np.arange(longest + begins) >= lengths + begins] = SPECIALS["<pad>"]
        if begins:
            ids[:, 0] = SPECIALS["<bos>"]
            ids[np.arange(pairs), lengths[:, 0]] = SPECIALS["<eos>"]
        sides.append(ids)
    return tuple(sides)


def made_up_cloze(shape: Shape, number: int) -> Arrays:
    """Ids (B, T) from [CLS] to [SEP], the places of hidden tokens in their rows, and those tokens (B, n)."""
    rng, options = keyed_rng(shape.options.seed, "benchmark", number), shape.options
    ids = made_up_ids(rng, len(BERT_SPECIALS), shape.vocab_size, (options.batch_size, shape.tokens))
    ids[:, 0], ids[:, -1] = BERT_SPECIALS["[CLS]"], BERT_SPECIALS["[SEP]"]
    words = np.tile(np.arange(1, shape.tokens - 1), (options.batch_size, 1))
    places = np.sort(rng.permuted(words, axis=1)[:, : round(options.mask_share * words.shape[1])])
    targets = np.take_along_axis(ids, places, axis=1)
    np.put_along_axis(ids, places, BERT_SPECIALS["[MASK]"], axis=1)
    return ids, places, targets


def places_of_all(ids: np.ndarray, places: np.ndarray, targets: np.ndarray) -> Arrays:
    """The parts of a `MaskedBatch`, whose places are numbered through all rows; one segment."""
    numbered = places + ids.shape[1] * np.arange(len(ids))[:, None]
    return ids, np.zeros_like(ids), numbered.reshape(-1), targets.reshape(-1)


def made_up_pictures(shape: Shape, number: int) -> Arrays:
    """Pictures (B, H, W, 1) of random pixels, and labels (B,)."""
    rng, options = keyed_rng(shape.options.seed, "benchmark", number), shape.options
    pixels = rng.random((options.batch_size, options.config.image_size, options.config.image_size, 1), np.float32)
    return 2 * pixels - 1, made_up_ids(rng, 0, shape.vocab_size, (options.batch_size,))


MADE_UP = {GPT: made_up_windows, Seq2Seq: made_up_pairs, Bert: made_up_cloze, ViT: made_up_pictures}


def preset(kind: type[Options], name: str) -> Options:
    """The settings of a preset."""
    values = read_preset(find_preset(name))
    values.pop("family", None)
    return build(kind, (f"preset {name}", values))


BABY = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "batch_size": 8}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "batch_size": 1}
GPT2 |= {"bias": True, "activation": "gelu_tanh", "learning_rate": 3e-4}
VOCABULARY = 84  # the 83 characters of the text that the default preset learns from, and the unknown one

SMALL = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 12}

GOETHE = preset(GPTOptions, "goethe")
BERT, PICTURES = preset(BertOptions, "bert-goethe"), preset(ViTOptions, "vit-fashion")
GOETHE_SIZES = {name: values_of(GOETHE)[name] for name in SMALL}

SHAPES = {
    "small": Shape(GPTOptions.of(**SMALL), VOCABULARY, SMALL["block_size"]),
    "baby": Shape(GPTOptions.of(**BABY), VOCABULARY, 256),
    "baby-dropout": Shape(GPTOptions.of(**BABY, dropout=0.2), VOCABULARY, 256),
    "gpt2": Shape(GPTOptions.of(**GPT2), 50257, 256),
    "baby-recompute": Shape(GPTOptions.of(**BABY, recompute=True), VOCABULARY, 256),
    "gpt2-recompute": Shape(GPTOptions.of(**GPT2, recompute=True), 50257, 256),
    "translation": Shape(preset(Seq2SeqOptions, "translate-en-de"), 6000, LONGEST),
    "goethe": Shape(GOETHE, GOETHE.vocab_size, GOETHE.config.block_size),
    "goethe-gpt2": Shape(GPTOptions.of(**GOETHE_SIZES), GOETHE.vocab_size, GOETHE.config.block_size),  # GPT-2's parts
    "goethe-no-dropout": Shape(GOETHE.changed(dropout=0.0), GOETHE.vocab_size, GOETHE.config.block_size),
    "bert": Shape(BERT, BERT.vocab_size, BERT.config.block_size),
    "bert-no-dropout": Shape(BERT.changed(dropout=0.0), BERT.vocab_size, BERT.config.block_size),
    "vit": Shape(PICTURES, PICTURES.vocab_size, 1),
    "vit-no-dropout": Shape(PICTURES.changed(dropout=0.0), PICTURES.vocab_size, 1),
}


# For a GPU. The base Transformer of Vaswani et al. 2017, table 3, with about half of the paper's batch of 25,000 source
# and 25,000 target tokens: the same number as in a step of GPT-2 here.
BASE = {"n_layer": 6, "n_head": 8, "n_embd": 512, "norm_first": False, "dropout": 0.1}
GPU_BABY, GPU_GPT2 = GPTOptions.of(**BABY | {"batch_size": 64}), GPTOptions.of(**GPT2 | {"batch_size": 12})
GPU_SHAPES = {
    "baby": Shape(GPU_BABY, 65, 256),
    "baby-dropout": Shape(GPU_BABY.changed(dropout=0.2), 65, 256),
    "gpt2": Shape(GPU_GPT2, 50257, 1024),
    "gpt2-padded": Shape(GPU_GPT2, 50304, 1024),  # the next multiple of 64, for the GPU's matrix units
    "translation": Shape(Seq2SeqOptions.of(**BASE), 37000, 32, pairs=384),
}
# The same models with tiny sizes, only to check that everything runs.
TINY = {"n_layer": 1, "n_head": 2, "n_embd": 32}
QUICK_SHAPES = {
    name: replace(
        shape,
        options=shape.options.changed(**TINY, block_size=16, **({} if shape.translates else {"batch_size": 2})),
        vocab_size=70,
        tokens=8,
        pairs=3,
    )
    for name, shape in GPU_SHAPES.items()
}
