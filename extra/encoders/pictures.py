"""The task and the options of the models of pictures: say which class a picture belongs to."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from extra.corpora.pictures import RECIPES, load_pictures
from extra.encoders.classes import ClassesTask
from extra.encoders.cnn import CNNConfig
from extra.encoders.vit import PictureBatch, ViTConfig
from extra.options import ShelfOptions
from extra.tokenizers.labels import LabelTokenizer
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import CorpusError, counted
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.model_config import settings_of
from training.options import TrainOptions, of_data, of_training


@dataclass
class PictureOptions(ShelfOptions, TrainOptions):
    """The options of `train.py` that all models of pictures have."""

    dataset: str = of_data("digits", "pictures to learn from", choices=RECIPES)
    tokenizer: str = of_data("labels", "what is predicted: the class of a picture", choices=("labels",))
    vocab_size: int = of_data(10, "classes, for --dry_run; the data decide", low=2, high=1_000_000)
    batch_size: int = of_training(64, "pictures per micro-step", unit="pictures", low=1, high=1_000_000)
    shift: int = of_training(0, "augmentation: move each picture by up to N pixels", unit="pixels", low=0, high=100)
    flip: bool = of_training(False, "augmentation: mirror every second picture")
    weight_decay: float = of_training(0.05, "weight decay of the matrices", low=0.0)

    FACTORS: ClassVar[tuple[tuple[str, str], ...]] = (("batch_size", "pictures"),)
    COUNTED = (1, "picture")


@dataclass
class ViTOptions(PictureOptions):
    """The options of `train.py` for training a Vision Transformer."""

    config: ViTConfig = settings_of(ViTConfig)


@dataclass
class CNNOptions(PictureOptions):
    """The options of `train.py` for training a convolutional network."""

    config: CNNConfig = settings_of(CNNConfig)


class PicturesTask(ClassesTask):
    """Labelled pictures to learn from, and others to evaluate on."""

    example, asked_with, predicted, classes = "test:0", "image", "picture", "pictures"

    def __init__(self, options: Any, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        data = self.data = load_pictures(options.dataset)
        self.train, self.held_out, self.corpus_sha256 = data.train, data.validation, data.sha256
        self.tokenizer = tokenizer or LabelTokenizer(data.labels)
        side = data.train.pixels.shape[1]
        if tokenizer is None:
            options.config = replace(options.config, image_size=side)
        if options.config.channels != 1:
            raise CorpusError(f"the pictures of {data.name} are gray: take --channels 1, not {options.config.channels}")
        if options.config.image_size != side or self.tokenizer.labels != list(data.labels):
            raise CorpusError(
                f"the pictures of {data.name} have {side} x {side} pixels and the classes "
                f"{', '.join(data.labels)}, which are not those of the model"
            )

    def hold_out_test(self) -> None:
        """From now on, evaluate on the test part, which no run has seen."""
        self.held_out = self.data.test

    def describe(self) -> str:
        """One line about the pictures."""
        data = self.data
        return (
            f"{data.name}: {len(data.train.labels):,} pictures to learn from, {len(data.validation.labels):,} to "
            f"evaluate on, {len(data.test.labels):,} for a test at the end; {len(data.labels)} classes; an epoch is "
            f"{counted(math.ceil(len(data.train.labels) / self.target_tokens(0)), 'step')}"
        )

    def training_batch(self, numbers: np.ndarray, own: slice, step: int, first: int) -> PictureBatch:
        """A process's own pictures of a batch, augmented."""
        options, (pixels, labels) = self.options, self.train
        chosen = pixels[numbers]
        if options.shift or options.flip:  # drawn for all rows, so that a row gets the same in any process
            rng = keyed_rng(options.seed, "augment", step, first)
            chosen = augmented(chosen, options.shift, options.flip, rng)
        return self.batch((chosen, labels[numbers]), own)

    def batch(self, columns: tuple[np.ndarray, np.ndarray], numbers: np.ndarray | slice) -> PictureBatch:
        """The tensors of some pictures."""
        device, (pixels, labels) = self.options.device, (column[numbers] for column in columns)
        pictures = Tensor(self.data.scaled(pixels), dtype=np.float32, device=device)
        return PictureBatch(pictures, Tensor(labels, dtype=np.int64, device=device))


def augmented(pictures: np.ndarray, shift: int, flip: bool, rng: np.random.Generator) -> np.ndarray:
    """Pictures (B, H, W) moved by up to `shift` pixels, with black around them, and some of them mirrored.

    The class stays the same, so every epoch shows the model different pictures of it.
    """
    batch, height, width = pictures.shape
    moved = np.pad(pictures, ((0, 0), (shift, shift), (shift, shift)))
    rows = rng.integers(0, 2 * shift + 1, batch)[:, None] + np.arange(height)
    columns = rng.integers(0, 2 * shift + 1, batch)[:, None] + np.arange(width)
    if flip:
        columns = np.where(rng.random(batch)[:, None] < 0.5, columns[:, ::-1], columns)
    return moved[np.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]
