"""BERT: its size, which outputs depend on which inputs, and its losses."""

import math
from dataclasses import replace

import numpy as np
import pytest

from extra.encoders.bert import Bert, LabelledBatch, MaskedBatch, mean_of_text, without_head
from extra.encoders.config import BertConfig
from tests.lively import assert_recompute_changes_nothing, gradients, lively
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.random import random_key

SMALL = BertConfig(40, 0, 1, 2, 3, n_layer=2, n_head=2, n_embd=12, n_inner=20, block_size=16, dropout=0.0)
KINDS = [
    {"next_sentence": True},
    {"norm_first": False, "next_sentence": True},
    {"positions": "rotary", "next_sentence": True},
    {"objective": "labels", "labels": "a|b|c"},
    {"objective": "labels", "labels": "a|b", "pooling": "mean", "norm_first": False},
]
IDS = np.array([[1, 7, 3, 9, 2, 12, 2], [1, 8, 2, 0, 0, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]])


def small(**settings) -> Bert:
    return lively(lambda: Bert(replace(SMALL, **settings)))


def batch_for(model: Bert) -> MaskedBatch | LabelledBatch:
    if model.config.objective == "labels":
        return LabelledBatch(Tensor(IDS), Tensor(SEGMENTS), Tensor(np.array([1, 0])))
    follows = Tensor(np.array([1, 0])) if model.config.next_sentence else None
    return MaskedBatch(Tensor(IDS), Tensor(SEGMENTS), Tensor(np.array([2, 5, 8])), Tensor(np.array([7, 8, 9])), follows)


def test_base_and_large_have_the_papers_sizes():
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


def test_segments_and_the_position_matter():
    model = small()
    one = model(Tensor(IDS[:1])).numpy()
    assert np.abs(one - model(Tensor(IDS[:1]), Tensor(SEGMENTS[:1])).numpy()).max() > 1e-3
    swapped = model(Tensor(IDS[:1, [0, 3, 2, 1, 4, 5, 6]])).numpy()
    assert np.abs(swapped[:, 3] - one[:, 1]).max() > 1e-3


def test_a_sequence_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="17 positions do not fit into block_size 16"):
        small()(Tensor(np.ones((1, 17), np.int64)))


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


def test_a_new_head_keeps_the_encoder():
    words = small(next_sentence=True)
    config = replace(words.config, objective="labels", labels="no|yes")
    with random_key(5):
        weights = without_head(words.state_dict(), config)
    model = Bert.from_weights(config, weights)
    np.testing.assert_array_equal(model.pooler.weight.numpy(), words.pooler.weight.numpy())
    assert "lm_head.bias" not in weights
    assert weights["label_head.weight"].shape == (2, 12)
    np.testing.assert_allclose(model(Tensor(IDS)).numpy(), words(Tensor(IDS)).numpy())


MISFITS = [
    ({"labels": "a|a"}, "must be different names"),
    ({"labels": "a|"}, "must be different names"),
    ({"next_sentence": True, "segments": 1}, "next_sentence needs two segments"),
    ({"n_embd": 13}, "not a multiple of"),
]


@pytest.mark.parametrize(("settings", "sentence"), MISFITS)
def test_settings_that_do_not_fit_together_are_named(settings, sentence):
    assert sentence in replace(SMALL, **settings).misfit()
