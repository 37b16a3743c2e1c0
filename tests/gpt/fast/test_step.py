"""The fast step: the same log-probabilities as the general step, for all settings."""

import functools
import itertools

import numpy as np
import pytest

from gpt.fast import step as fast_module
from gpt.fast.step import ACTIVATIONS, FastStep
from tests.gpt.combined_settings import COMBINED
from tests.gpt.configs import GPTConfig, has
from tests.gpt.small_gpts import gpt_with_large_weights
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.optim import AdamW
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import POSITIONS, MultiHeadAttention

TOLERANCE = {"float32": 2e-5, "float64": 1e-12}
make_model = functools.partial(gpt_with_large_weights, vocab_size=23, block_size=12, n_embd=16, dropout=0.2)


def steps(model, prompt, tokens):
    """The log-probabilities after each of these tokens, and whether the fast step was used."""
    _, state = model.start(prompt)
    found = []
    for column in tokens.T:
        log_probs, state = model.step(column, state)
        found.append(log_probs)
    return np.array(found), state.fast is not None


def fast_step(model):
    """The fast step that writes a token, which must be the one that the general step writes."""
    prompt, token = np.array([[3, 1]]), np.array([2])
    log_probs, state = model.step(token, model.start(prompt)[1])
    with composed():
        general, _ = model.step(token, model.start(prompt)[1])
    np.testing.assert_allclose(log_probs, general, rtol=1e-4, atol=1e-5)
    return state.fast


def updated(model, optimizer):
    """Do an update with gradients of 1."""
    for parameter in model.parameters():
        parameter.grad = parameter.ones_like()
    optimizer.step()


# Every other choice of every setting: new ones are compared too, or `FastStep.fits` must refuse them.
EVERY_CHOICE = (
    {name: choice}
    for name, field in GPTConfig.chosen().items()
    for choice in field.metadata["choices"] or ((False, True) if isinstance(field.default, bool) else ())
    if choice != field.default
)
CHOICES = [choice for choice in EVERY_CHOICE if not GPTConfig(23, **choice).misfit()]
SETTINGS = [*CHOICES, *COMBINED.values(), {}, {"n_head": 1, "n_layer": 3}, {"positions": "rotary", "n_layer": 1}]
OF_THE_SHELF = [{"activation": "gelu_tanh", "bias": True, "norm_eps": 1e-3}, {"activation": "relu", "n_inner": 20}]
SETTINGS += filter(has, [*OF_THE_SHELF, {"positions": "rotary", "rope_scaling": "8,1,4,10"}])


COMPARED = [
    *((settings, "float64") for settings in SETTINGS),
    *((settings, "float32") for settings in ({}, {"activation": "gelu_tanh"}, COMBINED["speed run"])),
    *(pytest.param(choice, "float32", marks=pytest.mark.slow) for choice in CHOICES),
]


@pytest.mark.parametrize(("settings", "dtype"), COMPARED, ids=str)
def test_the_fast_step_equals_the_general_one(settings, dtype, monkeypatch):
    """With several rows, and beyond the end of the context, where it starts again."""
    monkeypatch.setattr("gpt.fast.weights.ROWS", 5)  # so that matrices are stored in several pieces, as large ones are
    model = make_model(dtype, **settings)
    rng = np.random.default_rng(2)
    prompt, tokens = rng.integers(0, 23, (3, 4)), rng.integers(0, 23, (3, 10))
    fast, is_fast = steps(model, prompt, tokens)
    with composed():
        general, is_general_fast = steps(model, prompt, tokens)
    config = model.config
    is_known = config.norm_first and config.residual and config.activation in ACTIVATIONS
    is_known = is_known and config.mixer == "attention" and not POSITIONS[config.positions]
    assert (is_fast, is_general_fast) == (is_known, False)
    assert fast.dtype == general.dtype == np.dtype(dtype)
    np.testing.assert_allclose(fast, general, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10)


def test_the_fast_step_is_not_used_where_it_does_not_apply(monkeypatch):
    class Mixer(MultiHeadAttention):
        """Another mixer, which may compute something else."""

    model, tokens, prompts = make_model(), np.ones((2, 2), int), np.ones((2, 3), int)
    assert steps(model, prompts, tokens)[1]
    assert not steps(model, [[1, 2, 3], [4]], tokens)[1]  # rows of different lengths
    _, state = model.start(prompts, use_cache=False)
    assert model.step(tokens[:, 0], state)[1].fast is None
    model.train()
    assert not steps(model, prompts, tokens)[1]  # dropout
    model.eval()
    for place, name, value in (
        (fast_module, "MAX_PARAMETERS", 100),
        (model.blocks[1], "norm_first", False),
        (model.blocks[0].mixer, "__class__", Mixer),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(place, name, value)
            assert not steps(model, prompts, tokens)[1]


def test_a_prompt_of_one_token_uses_the_fast_step_too_and_changes_no_weight():
    model = make_model()
    before = {name: array.tobytes() for name, array in model.state_dict().items()}
    fast, state = model.start(np.array([[3], [7]]))
    assert (state.fast is not None, [cache.length for cache in state.caches]) == (True, [1, 1])
    assert {name: array.tobytes() for name, array in model.state_dict().items()} == before
    with composed():
        general, _ = model.start(np.array([[3], [7]]))
    np.testing.assert_allclose(fast, general, rtol=1e-12, atol=1e-11)


def test_weights_are_laid_out_once_and_again_after_every_change():
    model = make_model()
    used = [fast_step(model)]
    assert fast_step(model) is used[0]
    optimizer = AdamW(model.named_parameters(), lr=0.1)  # which moves the weights
    used.append(fast_step(model))
    updated(model, optimizer)
    used.append(fast_step(model))
    model.load_state_dict({name: array * 1.5 for name, array in model.state_dict().items()})
    used.append(fast_step(model))
    model.lm_head.weight.data = model.lm_head.weight.data * 2
    used.append(fast_step(model))
    assert all(after is not before for before, after in itertools.pairwise(used))
    model.train()
    assert model._fast is None


@pytest.mark.parametrize("factor", [1e3, -1e3], ids=["overflow", "underflow"])
@pytest.mark.parametrize("place", ["attention", "logits"])
def test_large_scores_are_exact_too(place, factor):
    """Where exponentials overflow, or all become 0, the token is computed again, in its place in the caches."""
    model = make_model("float32", bias=True)
    mixer = model.blocks[1].mixer
    if place == "attention":  # the first numbers of queries and keys, whose product dominates the scores
        mixer.query.bias.data[0], mixer.key.bias.data[0] = 1.0, factor
    else:  # the same number is added to all logits
        model.lm_head.weight.data[:, 0], model.final_norm.bias.data[0] = 1.0, factor
    fast = FastStep(model)
    caches, tokens = model.new_caches(), np.random.default_rng(2).integers(0, 23, (6, 2))
    found = np.array([fast(column, caches) for column in tokens])
    assert (fast.subtracts, [cache.length for cache in caches]) == (True, [6, 6])
    general = model(Tensor(tokens.T)).log_softmax().numpy().transpose(1, 0, 2)
    np.testing.assert_allclose(found, general, rtol=1e-4, atol=1e-2)
