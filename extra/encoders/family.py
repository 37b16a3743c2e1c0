"""Encoders, which read a whole text or image at once, as families of models for train.py and sample.py."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from extra.encoders import cnn, looking, minilm, reading
from extra.encoders.bert import Bert, without_head
from extra.encoders.config import BertConfig
from extra.encoders.labels import LabelsTask
from extra.encoders.options import BertOptions
from extra.encoders.pictures import CNNOptions, PicturesTask, ViTOptions
from extra.encoders.vit import ViT, ViTConfig
from extra.encoders.words import WordsTask
from extra.family import ShelfFamily
from extra.pretrained import bert, vit
from text.tokenizers.base import Tokenizer
from training.task import Task


class BertFamily(ShelfFamily):
    """BERT: it learns hidden words, or labels."""

    name = "bert"
    title = "BERT"
    about = "Train an encoder on text: to predict hidden words, or labels."
    examples: ClassVar[Mapping[str, str]] = {
        "python train.py bert-goethe": "hidden words of Goethe, seven minutes on two cores",
        "python train.py bert-reviews": "hidden words of film reviews",
        "python train.py classify --init_from out/bert-reviews": "then: is a review positive?",
    }
    preset = "bert-goethe"
    config = BertConfig
    model = Bert
    options = BertOptions
    layouts: ClassVar[Mapping[str, Any]] = {"bert": bert.LAYOUT}
    fetched: ClassVar[Mapping[str, Any]] = {"minilm": minilm}
    sample = staticmethod(reading.sample)

    def make_task(self, options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
        """What an encoder of text learns: hidden words, or labels."""
        return (LabelsTask if options.config.objective == "labels" else WordsTask)(options, tokenizer)

    def fit(self, weights: Mapping[str, np.ndarray], config: BertConfig) -> dict[str, np.ndarray]:
        """The weights for a model with these settings, which may have another head."""
        return without_head(super().fit(weights, config), config)


class PictureFamily(ShelfFamily):
    """Models that say what is in an image."""

    make_task = PicturesTask
    sample = staticmethod(looking.sample)


class ViTFamily(PictureFamily):
    """The Vision Transformer."""

    name = "vit"
    title = "the Vision Transformer"
    about = "Train a Vision Transformer to say what is in a picture."
    examples: ClassVar[Mapping[str, str]] = {
        "python train.py vit-digits": "handwritten digits, a minute on two cores",
        "python train.py vit-fashion": "pieces of clothing, eight minutes on two cores",
    }
    preset = "vit-digits"
    config = ViTConfig
    model = ViT
    options = ViTOptions
    layouts: ClassVar[Mapping[str, Any]] = {"vit": vit.LAYOUT}


class CNNFamily(PictureFamily):
    """A convolutional network."""

    name = "cnn"
    title = "the convolutional network"
    about = "Train a convolutional network to say what is in a picture."
    examples: ClassVar[Mapping[str, str]] = {
        "python train.py cnn-digits": "handwritten digits",
        "python train.py cnn-fashion": "pieces of clothing, seven minutes on two cores",
    }
    preset = "cnn-digits"
    config = cnn.CNNConfig
    model = cnn.CNN
    options = CNNOptions
    unexplained = "attention, which a convolutional network lacks"


BERT, VIT, CNN = BertFamily(), ViTFamily(), CNNFamily()
