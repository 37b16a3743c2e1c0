"""The two families of models of pictures, for train.py and sample.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from encoder.cnn import CNN, CNNConfig
from encoder.pictures import PictureOptions
from encoder.vit import ViT, ViTConfig
from workshop.cli.options import answers
from workshop.run.family import Family
from workshop.run.model_config import model_options


@dataclass
class ViTOptions(model_options(ViTConfig), PictureOptions):
    """The options of `train.py` for training a Vision Transformer."""

    HINTS: ClassVar[dict[str, str]] = PictureOptions.HINTS | answers("vit")


@dataclass
class CNNOptions(model_options(CNNConfig), PictureOptions):
    """The options of `train.py` for training a convolutional network."""


VIT_FAMILY = Family(
    name="vit",
    title="the Vision Transformer",
    about="Train a Vision Transformer to say what is in a picture.",
    examples={
        "python train.py vit-digits": "handwritten digits, a minute on two cores",
        "python train.py vit-fashion": "pieces of clothing, eight minutes on two cores",
    },
    preset="vit-digits",
    config=ViTConfig,
    model=ViT,
    options_at="encoder.picture_task:ViTOptions",
    task_at="encoder.pictures:PicturesTask",
    speak_at="encoder.looking:speak",
)

CNN_FAMILY = Family(
    name="cnn",
    title="the convolutional network",
    about="Train a convolutional network to say what is in a picture.",
    examples={
        "python train.py cnn-digits": "handwritten digits",
        "python train.py cnn-fashion": "pieces of clothing, seven minutes on two cores",
    },
    preset="cnn-digits",
    config=CNNConfig,
    model=CNN,
    options_at="encoder.picture_task:CNNOptions",
    task_at="encoder.pictures:PicturesTask",
    speak_at="encoder.looking:speak",
)
