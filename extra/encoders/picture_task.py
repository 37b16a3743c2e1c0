"""The options of the two families of models of pictures."""

from __future__ import annotations

from dataclasses import dataclass

from extra.encoders.cnn import CNNConfig
from extra.encoders.pictures import PictureOptions
from extra.encoders.vit import ViTConfig
from training.model_config import model_options


@dataclass
class ViTOptions(model_options(ViTConfig), PictureOptions):
    """The options of `train.py` for training a Vision Transformer."""


@dataclass
class CNNOptions(model_options(CNNConfig), PictureOptions):
    """The options of `train.py` for training a convolutional network."""
