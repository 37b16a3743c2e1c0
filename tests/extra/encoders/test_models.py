"""BERT, the Vision Transformer and the convolutional network: sizes, what depends on what, losses and gradients."""

import math
from dataclasses import replace

import numpy as np
import pytest

from extra.encoders.bert import Bert, LabelledBatch, MaskedBatch, mean_of_text
from extra.encoders.cnn import CNN, CNNConfig
from extra.encoders.config import BertConfig
from extra.encoders.vit import PictureBatch, ViT, ViTConfig, patches
from tests.lively import assert_recompute_changes_nothing, gradients, lively
from tests.tinygrad_lite import test_quantize as core
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.random import random_key

SMALL = BertConfig(40, 0, 1, 2, 3, n_layer=2, n_head=2, n_embd=12, n_inner=20, block_size=16, dropout=0.0)
KINDS = [{"next_sentence": True, "norm_first": False}, {"next_sentence": True, "positions": "rotary"}]
KINDS += [{"objective": "labels", "labels": "a|b|c"}]
KINDS += [{"objective": "labels", "labels": "a|b", "pooling": "mean", "norm_first": False}]
IDS = np.array([[1, 7, 3, 9, 2, 12, 2], [1, 8, 2, 0, 0, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]])


def small(config: BertConfig | ViTConfig | CNNConfig = SMALL, **settings) -> Bert | ViT | CNN:
    config = replace(config, **settings)
    return lively(lambda: {BertConfig: Bert, ViTConfig: ViT, CNNConfig: CNN}[type(config)](config))


def batch_for(model: Bert) -> MaskedBatch | LabelledBatch:
    if model.config.objective == "labels":
        return LabelledBatch(Tensor(IDS), Tensor(SEGMENTS), Tensor(np.array([1, 0])))
    follows = Tensor(np.array([1, 0])) if model.config.next_sentence else None
    return MaskedBatch(Tensor(IDS), Tensor(SEGMENTS), Tensor(np.array([2, 5, 8])), Tensor(np.array([7, 8, 9])), follows)


def test_base_and_large_have_their_numbers_of_parameters():
    # Devlin et al. 2018, section 3; the pooler is included
    base = BertConfig(30522, 0, 101, 102, 103, 12, 12, 768, 0, 512, 2, False, norm_eps=1e-12, objective="features")
    large = replace(base, n_layer=24, n_head=16, n_embd=1024)
    assert Bert.blueprint(base).num_parameters() == 109_482_240
    assert Bert.blueprint(large).num_parameters() == 335_141_888


@pytest.mark.parametrize("objective", ["words", "labels"])
def test_an_untrained_model_guesses(objective):
    with random_key(1):
        model = Bert(replace(SMALL, vocab_size=400, n_embd=48, next_sentence=True, objective=objective))
    expected = math.log(400) + math.log(2) if objective == "words" else math.log(2)
    assert model.loss(batch_for(model)).item() == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("settings", KINDS)
def test_gradients_are_right_and_reach_every_parameter(settings):
    model = small(**settings)
    model.loss(batch_for(model)).backward()
    gradients(model)  # every parameter has one
    gradcheck(lambda *_: model.loss(batch_for(model)), model.parameters(), directions=1)


@pytest.mark.parametrize("settings", KINDS)
def test_recomputed_blocks_give_the_same_gradients(settings):
    make = lambda recompute: small(**settings, recompute=recompute, dropout=0.2)  # noqa: E731
    assert_recompute_changes_nothing(make, [batch_for(small(**settings))])


def test_every_position_sees_every_other_but_no_padding():
    model = small()
    together = model(Tensor(IDS), Tensor(SEGMENTS)).numpy()
    alone = model(Tensor(IDS[1:, :3]), Tensor(SEGMENTS[1:, :3])).numpy()
    np.testing.assert_allclose(together[1, :3], alone[0], atol=1e-12)
    for place in range(7):
        changed = IDS.copy()
        changed[0, place] = 20
        difference = np.abs(model(Tensor(changed), Tensor(SEGMENTS)).numpy() - together)[0].max(-1)
        assert (difference > 1e-6).all()


def test_the_mean_leaves_out_padding():
    x, ids = Tensor(np.arange(12.0).reshape(2, 3, 2)), Tensor(np.array([[5, 5, 5], [5, 0, 0]]))
    np.testing.assert_allclose(mean_of_text(x, ids, pad=0).numpy(), [[2, 3], [6, 7]])


def test_a_share_of_the_rows_gives_a_share_of_the_gradient():
    """Two processes with a row each: the losses, times their shares of the hidden tokens, add up to the whole loss."""
    model = small(next_sentence=True)
    whole = model.loss(batch_for(model)).item()
    total = 0.0
    for n, (places, targets) in enumerate((([2, 5], [7, 8]), ([1], [9]))):
        share = len(places) / 3  # of the hidden tokens; each has half of the rows: 0.5 / share is follows_share
        arrays = (IDS[n : n + 1], SEGMENTS[n : n + 1], *map(np.array, (places, targets, [1 - n])))
        total += model.loss(MaskedBatch(*map(Tensor, arrays), 0.5 / share)).item() * share
    assert total == pytest.approx(whole)


# --- quantized blocks -------------------------------------------------------------------------------------------------


def test_the_blocks_of_an_encoder_are_quantized_too():
    config = BertConfig(23, 0, 1, 2, 3, n_layer=1, n_head=2, n_embd=16, block_size=12)
    core.test_the_blocks_of_other_models_are_quantized_too(lambda: Bert(config), 1, 6)


# --- pictures: the Vision Transformer and the convolutional network ---------------------------------------------------


PATCHES = ViTConfig(3, 4, 2, patch_size=2, n_layer=2, n_head=2, n_embd=8)
CONVOLUTIONS = CNNConfig(3, 4, 2, n_stage=2, n_conv=1, n_embd=4)
PICTURES = np.random.default_rng(1).uniform(-1, 1, (3, 4, 4, 2))


# Dosovitskiy et al. 2020, table 1, with a head for the 1,000 classes of ImageNet.
PAPERS = [
    ({"patch_size": 16, "n_layer": 12, "n_head": 12, "n_embd": 768}, 86.6),
    ({"patch_size": 16, "n_layer": 24, "n_head": 16, "n_embd": 1024}, 304.3),
    ({"patch_size": 14, "n_layer": 32, "n_head": 16, "n_embd": 1280}, 632.0),
]


@pytest.mark.parametrize(("sizes", "millions"), PAPERS)
def test_the_papers_three_sizes_have_their_numbers_of_parameters(sizes, millions):
    config = ViTConfig(1000, 224, 3, **sizes)
    assert ViT.blueprint(config).num_parameters() / 1e6 == pytest.approx(millions, abs=0.06)


def test_a_linear_map_of_patches_is_a_convolution():
    model = small(PATCHES)
    weight, bias = model.patch_embedding.weight, model.patch_embedding.bias
    pictures = Tensor(PICTURES)
    convolved = pictures.permute(0, 3, 1, 2).conv2d(weight.reshape(8, 2, 2, 2), bias, stride=2)  # (B, C, rows, columns)
    mapped = model.patch_embedding(patches(pictures, 2))
    np.testing.assert_allclose(mapped.numpy(), convolved.numpy().reshape(3, 8, 4).transpose(0, 2, 1), atol=1e-12)


OF_PICTURES = [PATCHES, replace(PATCHES, positions="2d", pooling="mean"), CONVOLUTIONS]


@pytest.mark.parametrize("config", OF_PICTURES)
def test_gradients_of_models_of_pictures_are_right_and_reach_every_parameter(config):
    model, batch = small(config), PictureBatch(Tensor(PICTURES), Tensor(np.array([0, 2, 1])))
    model.loss(batch).backward()
    gradients(model)  # every parameter has one
    gradcheck(lambda *_: model.loss(batch), [next(iter(model.parameters())), model.head.bias])


MISFITS = [
    (SMALL, {"labels": "a|a"}, "must be different names"),
    (SMALL, {"next_sentence": True, "segments": 1}, "next_sentence needs two segments"),
    (PATCHES, {"patch_size": 3}, "image_size 4 is not a multiple of patch_size 3"),
    (CONVOLUTIONS, {"n_stage": 3}, "n_stage 3 is too many"),
]


@pytest.mark.parametrize(("config", "settings", "sentence"), MISFITS)
def test_settings_that_do_not_fit_together_are_named(config, settings, sentence):
    assert sentence in replace(config, **settings).misfit()
