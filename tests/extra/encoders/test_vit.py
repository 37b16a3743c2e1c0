"""The Vision Transformer and the convolutional network."""

import math
from dataclasses import replace

import numpy as np
import pytest

from extra.encoders.cnn import CNN, CNNConfig
from extra.encoders.vit import PictureBatch, ViT, ViTConfig, patches
from tests.lively import gradients, lively
from tests.places import fill
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.random import random_key

SMALL = ViTConfig(3, 4, 2, patch_size=2, n_layer=2, n_head=2, n_embd=8)
CONVOLUTIONS = CNNConfig(3, 4, 2, n_stage=2, n_conv=1, n_embd=4)
PICTURES = np.random.default_rng(1).uniform(-1, 1, (3, 4, 4, 2))


def small(config):
    return lively(lambda: (ViT if isinstance(config, ViTConfig) else CNN)(config))


# Dosovitskiy et al. 2020, table 1, with a head for the 1,000 classes of ImageNet.
PAPERS = [
    ({"patch_size": 16, "n_layer": 12, "n_head": 12, "n_embd": 768}, 86.6),
    ({"patch_size": 16, "n_layer": 24, "n_head": 16, "n_embd": 1024}, 304.3),
    ({"patch_size": 14, "n_layer": 32, "n_head": 16, "n_embd": 1280}, 632.0),
]


@pytest.mark.parametrize(("sizes", "millions"), PAPERS)
def test_the_papers_sizes(sizes, millions):
    config = ViTConfig(1000, 224, 3, **sizes)
    assert ViT.blueprint(config).num_parameters() / 1e6 == pytest.approx(millions, abs=0.06)


def test_patches_are_squares_in_the_order_of_reading():
    pictures = np.arange(2 * 4 * 6 * 3.0).reshape(2, 4, 6, 3)
    cut = patches(Tensor(pictures), 2).numpy()
    assert cut.shape == (2, 6, 12)
    for row in range(2):
        for column in range(3):
            square = pictures[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            np.testing.assert_array_equal(cut[:, 3 * row + column], square.transpose(0, 3, 1, 2).reshape(2, 12))


def test_a_linear_map_of_patches_is_a_convolution():
    model = small(SMALL)
    weight, bias = model.patch_embedding.weight, model.patch_embedding.bias
    pictures = Tensor(PICTURES)
    convolved = pictures.permute(0, 3, 1, 2).conv2d(weight.reshape(8, 2, 2, 2), bias, stride=2)  # (B, C, rows, columns)
    mapped = model.patch_embedding(patches(pictures, 2))
    np.testing.assert_allclose(mapped.numpy(), convolved.numpy().reshape(3, 8, 4).transpose(0, 2, 1), atol=1e-12)


KINDS = [SMALL, replace(SMALL, positions="2d", pooling="mean"), replace(SMALL, positions="2d"), CONVOLUTIONS]


@pytest.mark.parametrize("config", KINDS)
def test_gradients_are_right_and_reach_every_parameter(config):
    model, batch = small(config), PictureBatch(Tensor(PICTURES), Tensor(np.array([0, 2, 1])))
    model.loss(batch).backward()
    gradients(model)  # every parameter has one
    gradcheck(lambda *_: model.loss(batch), [next(iter(model.parameters())), model.head.bias])


@pytest.mark.parametrize("config", [SMALL, CONVOLUTIONS])
def test_an_untrained_model_guesses(config):
    with random_key(1):
        model = (ViT if config is SMALL else CNN)(config)
    loss = model.loss(PictureBatch(Tensor(PICTURES, dtype=np.float32), Tensor(np.array([0, 2, 1])))).item()
    assert loss == pytest.approx(math.log(3), abs=0.1 if config is SMALL else 1.0)


def test_without_positions_the_order_of_patches_would_not_matter():
    """The mean over patches of a model whose positions are all alike does not change when patches change places."""
    model = small(replace(SMALL, pooling="mean"))
    moved = PICTURES[:, [2, 3, 0, 1]]  # the upper and the lower row of patches
    assert np.abs(model(Tensor(moved)).numpy() - model(Tensor(PICTURES)).numpy()).max() > 1e-3
    fill(model.position_embedding.weight, 0.5)
    np.testing.assert_allclose(model(Tensor(moved)).numpy(), model(Tensor(PICTURES)).numpy(), atol=1e-12)


def test_a_convolution_finds_a_shape_wherever_it_is():
    model = small(replace(CONVOLUTIONS, image_size=8, n_stage=1))
    picture = np.zeros((1, 8, 8, 2))
    picture[0, 2:4, 2:4] = 1.0
    layer = model.convolutions[0]
    here_, there = (layer(Tensor(p).permute(0, 3, 1, 2)).numpy() for p in (picture, np.roll(picture, (2, 1), (1, 2))))
    np.testing.assert_allclose(np.roll(here_, (2, 1), (2, 3)), there, atol=1e-12)


MISFITS = [
    (replace(SMALL, patch_size=3), "image_size 4 is not a multiple of patch_size 3"),
    (replace(CONVOLUTIONS, n_stage=3), "n_stage 3 is too many"),
]


@pytest.mark.parametrize(("config", "sentence"), MISFITS)
def test_settings_that_do_not_fit_together_are_named(config, sentence):
    assert sentence in config.misfit()
