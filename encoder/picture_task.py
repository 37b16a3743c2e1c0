"""The options of the two families of models of pictures."""

from __future__ import annotations

from dataclasses import dataclass

from encoder.cnn import CNNConfig
from encoder.pictures import PictureOptions
from encoder.vit import ViTConfig
from workshop.run.model_config import model_options


@dataclass
class ViTOptions(model_options(ViTConfig), PictureOptions):
    """The options of `train.py` for training a Vision Transformer."""


@dataclass
class CNNOptions(model_options(CNNConfig), PictureOptions):
    """The options of `train.py` for training a convolutional network."""
