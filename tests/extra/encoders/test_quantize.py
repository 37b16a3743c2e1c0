"""Encoders with quantized blocks; a convolutional network has none."""

import pytest

from extra.encoders.bert import Bert
from extra.encoders.cnn import CNN, CNNConfig
from extra.encoders.config import BertConfig
from tests.tinygrad_lite import test_quantize as core
from tinygrad_lite.errors import OptionError
from tinygrad_lite.quantize import quantize


def test_the_blocks_of_an_encoder_are_quantized_too():
    config = BertConfig(23, 0, 1, 2, 3, n_layer=1, n_head=2, n_embd=16, block_size=12)
    core.test_the_blocks_of_other_models_are_quantized_too(lambda: Bert(config), 1, 6)


def test_a_convolutional_network_is_refused():
    with pytest.raises(OptionError, match="nothing to quantize: no block of this CNN"):
        quantize(CNN(CNNConfig(10)), "nf4")
