"""What is recorded inside a GPT is what the model computes; a head that is switched off adds nothing."""

import numpy as np
import pytest

from docs.course import check
from extra.inside.gpt import look_inside
from tests.gpt.combined_settings import COMBINED
from tests.gpt.small_gpts import gpt_with_large_weights
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.errors import UserError

without_heads = check.load(check.chapters()[15] / "without.py").without_heads
IDS = [3, 1, 4, 1, 5, 9]


def predictions(model, ids=IDS):
    with no_grad():
        return model(Tensor(np.array([ids]))).numpy()[0]


ATTENTIVE = [settings for settings in COMBINED.values() if "mixer" not in settings]


@pytest.mark.parametrize("settings", [{}, {"norm_first": False}, *ATTENTIVE])
def test_what_is_recorded_adds_up_to_the_prediction(settings):
    model = gpt_with_large_weights("float32", **{"n_embd": 16, "dropout": 0.5} | settings)
    found = look_inside(model.train(), IDS)  # dropout is switched off
    np.testing.assert_allclose(found.logits[-1], predictions(model.eval()), atol=1e-5)
    assert found.attention.shape == (2, settings.get("n_head", 2), 6, 6)
    np.testing.assert_allclose(found.attention.sum(-1), 1, rtol=1e-5)
    assert not np.triu(found.attention, 1).any()
    if model.config.norm_first:
        np.testing.assert_allclose(found.stream[0] + found.added.sum((0, 1)), found.stream[-1], atol=1e-4)


def test_a_model_without_attention_has_none_to_show():
    with pytest.raises(UserError, match="but only --mixer attention can be looked at"):
        look_inside(gpt_with_large_weights(**COMBINED["lstm"]), IDS)


def test_the_recorded_attention_is_the_one_that_is_used():
    settings = {"n_embd": 16, "n_layer": 1, "positions": "rotary", "qk_norm": True, "attention_scale": 0.7}
    model = gpt_with_large_weights("float32", **settings)
    found, mixer = look_inside(model, IDS), model.blocks[0].mixer
    with no_grad():
        x = model.blocks[0].mixer_norm(Tensor(found.stream[:1]))
        values = mixer.value(x).numpy()[0].reshape(6, 2, 8)
    heads = np.einsum("hts,shd->thd", found.attention[0], values).reshape(6, 16)
    np.testing.assert_allclose(heads @ mixer.output.weight.numpy().T, found.added[0, 0], atol=1e-5)


def test_a_head_without_weight_is_not_missed_and_others_are():
    model = gpt_with_large_weights("float32", n_embd=16)
    before = predictions(model)
    model.blocks[1].mixer.output.weight.data[:, 8:] = 0  # layer 1, head 1 adds nothing
    same, weights = predictions(model), model.state_dict()
    with without_heads(model, [(1, 1)]):
        np.testing.assert_array_equal(predictions(model), same)
    with without_heads(model, [(1, 1), (0, 0)]):
        assert np.abs(predictions(model) - same).max() > 0.01
    np.testing.assert_array_equal(predictions(model), same)
    assert np.abs(before - same).max() > 0.01
    with pytest.raises(IndexError, match="no head 2"), without_heads(model, [(0, 1), (0, 2)]):
        pass
    assert all((weights[name] == array).all() for name, array in model.state_dict().items())


def test_text_is_generated_without_the_heads_too():
    """The fast step, made before, does not keep the weights that it was made of."""
    model = gpt_with_large_weights("float32", n_embd=16)

    def after_two_tokens():
        _, state = model.start(np.array([[3]]))
        return model.step(np.array([1]), state)[0][0]

    before = after_two_tokens()
    with without_heads(model, [(0, 0)]):
        changed = after_two_tokens()
        expected = model(Tensor(np.array([[3, 1]]))).numpy()[0, -1]
    np.testing.assert_allclose(changed, expected - np.log(np.exp(expected).sum()), atol=1e-5)
    assert np.abs(changed - before).max() > 1e-3
    assert (after_two_tokens() == before).all()
