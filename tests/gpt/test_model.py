import math
from dataclasses import replace

import numpy as np
import pytest

from gpt.config import GPTConfig
from gpt.model import GPT
from tests.places import fill, here
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.optim import AdamW, decay_groups
from workshop.decoding.sampling import generate

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(9)
both_positions = pytest.mark.parametrize("positions", ["learned", "sinusoidal"])


def small(dtype="float64", **changes):
    """A GPT of two blocks over 11 tokens with a context of 8."""
    settings = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 12} | changes
    manual_seed(3)
    return GPT(GPTConfig(**settings)).to(here(), dtype)


def gpt_with_large_weights(dtype="float64", **changes):
    """Weights large enough that the prediction depends on every token."""
    model, numbers = small(dtype, **changes), np.random.default_rng(1)
    for parameter in model.parameters():
        fill(parameter, numbers.standard_normal(parameter.shape) * 0.3)
    return model.eval()


def ids(*shape, vocab_size=11):
    return Tensor(rng.integers(0, vocab_size, shape))


def gradients(model, *batches, share=1.0):
    model.zero_grad()
    for batch in batches:
        (model.loss(batch) * share).backward()
    return {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}


# --- what it computes -----------------------------------------------------------------------------------------


@both_positions
@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_of_an_untrained_model_is_that_of_guessing(positions, bias):
    """Its loss is ln V: as if all V tokens were equally probable."""
    manual_seed(1)
    model = GPT(GPTConfig(vocab_size=65, block_size=32, n_layer=4, n_head=4, n_embd=64, bias=bias, positions=positions))
    loss = model.loss((ids(4, 32, vocab_size=65), ids(4, 32, vocab_size=65))).item()
    assert loss == pytest.approx(math.log(65), abs=0.1)
    assert (model(ids(2, 7)).shape, model(ids(2, 7)).dtype) == ((2, 7, 65), np.float32)


@both_positions
def test_later_tokens_never_change_earlier_predictions(positions):
    model, tokens = gpt_with_large_weights(positions=positions), ids(2, 8).numpy()
    before = model(Tensor(tokens)).numpy()
    for position in range(8):
        changed = tokens.copy()
        changed[:, position:] = (changed[:, position:] + 1 + rng.integers(0, 9, (2, 8 - position))) % 11
        after = model(Tensor(changed)).numpy()
        np.testing.assert_array_equal(after[:, :position], before[:, :position])
        assert np.abs(after[:, position:] - before[:, position:]).max() > 1e-3


@both_positions
def test_the_order_of_earlier_tokens_matters(positions):
    model = gpt_with_large_weights(positions=positions)
    one, other = model(Tensor([[1, 2, 3]])).numpy(), model(Tensor([[2, 1, 3]])).numpy()
    assert np.abs(one[0, -1] - other[0, -1]).max() > 1e-3


def test_more_positions_than_the_context_are_refused():
    model = small()
    with pytest.raises(ValueError, match="GPT: 9 positions do not fit into block_size 8"):
        model(ids(1, 9))
    caches = model.new_caches()
    with no_grad():
        model(ids(1, 6), caches)
        with pytest.raises(ValueError, match="GPT: 9 positions do not fit into block_size 8"):
            model(ids(1, 3), caches)


def test_the_head_is_the_token_embedding():
    model = small()
    assert model.lm_head.weight is model.token_embedding.weight
    assert "lm_head.weight" not in model.state_dict()


def test_initialisation_reaches_all_matrices():
    manual_seed(1)
    model = GPT(GPTConfig(vocab_size=100, block_size=64, n_layer=3, n_head=4, n_embd=128, bias=True))
    for name, parameter in model.named_parameters():
        values = parameter.numpy()
        if parameter.ndim == 2:
            is_residual = name.endswith(("mixer.output.weight", "mlp.down.weight"))
            assert values.std() == pytest.approx(0.02 / math.sqrt(6) if is_residual else 0.02, rel=0.04), name
        else:
            assert np.unique(values).tolist() == ([1.0] if "norm.weight" in name else [0.0]), name


# --- gradients ------------------------------------------------------------------------------------------------


@both_positions
@pytest.mark.parametrize("bias", [True, False])
def test_the_gradients_of_all_parameters_are_right(positions, bias):
    model, batch = small(positions=positions, bias=bias, dropout=0.1), (ids(2, 5), ids(2, 5))
    gradcheck(lambda *parameters: model.loss(batch), model.parameters(), directions=2)


def test_composed_and_fused_models_agree():
    model, batch = small(dropout=0.1 if here() == "cpu" else 0.0, bias=True), (ids(3, 8), ids(3, 8))
    with random_key(5):
        fused = gradients(model, batch)
    with random_key(5), composed():
        expected = gradients(model, batch)
    for name, gradient in expected.items():
        np.testing.assert_allclose(fused[name], gradient, atol=1e-12 * np.abs(gradient).max() + 1e-15, err_msg=name)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-13)])
def test_gradient_accumulation_is_exact(dtype, tolerance):
    """3 micro-steps of 4 sequences equal one of 12."""
    model, tokens, targets = small(dtype), ids(12, 8), ids(12, 8)
    whole = gradients(model, (tokens, targets))
    thirds = [(tokens[i : i + 4], targets[i : i + 4]) for i in (0, 4, 8)]
    summed = gradients(model, *thirds, share=1 / 3)
    largest = max(np.abs(gradient).max() for gradient in whole.values())
    for name, gradient in whole.items():
        np.testing.assert_allclose(summed[name], gradient, rtol=0, atol=tolerance * largest, err_msg=name)


def test_the_model_learns_a_sentence():
    model = small("float32", n_layer=1)
    tokens = np.array([[1, 2, 3, 4, 1, 5, 6, 7, 0]])
    optimizer = AdamW(decay_groups(model, 0.0), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.loss((Tensor(tokens[:, :-1]), Tensor(tokens[:, 1:])))
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05  # even for 2 and 5 after the same 1, which only the position distinguishes
    predicted = model(Tensor(tokens[:, :-1])).argmax(-1)
    assert predicted.tolist() == tokens[:, 1:].tolist()


# --- generating -----------------------------------------------------------------------------------------------


@both_positions
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_a_cache_changes_no_prediction(positions, dtype, tolerance):
    model, tokens = gpt_with_large_weights(dtype, positions=positions), ids(3, 8)
    with no_grad():
        whole = model(tokens).numpy()
        for pieces in ([1] * 8, [5, 1, 2], [3, 5]):
            caches = model.new_caches()
            parts = [model(part, caches).numpy() for part in tokens.split(pieces, axis=1)]
            np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=tolerance)


def written(model, prompt, use_cache, **settings):
    log_probs, state = model.start(prompt, use_cache)
    return np.stack(list(generate(model.step, log_probs, state, max_new_tokens=20, **settings)), axis=1)


@both_positions
@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}])
@pytest.mark.parametrize("length", [1, 7, 8, 13])
def test_cached_and_uncached_text_are_equal_beyond_a_full_context(positions, settings, length):
    """20 tokens in a context of 8: it becomes full twice."""
    model, prompt = gpt_with_large_weights(positions=positions), ids(2, length).numpy()
    cached, uncached = (written(model, prompt, use_cache, **settings) for use_cache in (True, False))
    assert cached.shape == (2, 20)
    np.testing.assert_array_equal(cached, uncached)


@both_positions
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
def test_cached_and_uncached_predictions_agree_beyond_a_full_context(positions, dtype, tolerance):
    model = gpt_with_large_weights(dtype, positions=positions)
    log_probs, state = model.start(ids(3, 5).numpy())
    expected, plain = model.start(state.window, use_cache=False)
    assert plain.caches is None
    for _ in range(25):
        np.testing.assert_allclose(log_probs, expected, rtol=0, atol=tolerance)
        tokens = ids(3).numpy()
        log_probs, state = model.step(tokens, state)
        expected, plain = model.step(tokens, plain)


def test_a_full_context_continues_from_its_second_half():
    model, tokens = gpt_with_large_weights(), ids(1, 9).numpy()
    log_probs, state = model.start(tokens[:, :8])
    assert state.window.shape == (1, 8)
    log_probs, state = model.step(tokens[:, 8], state)
    np.testing.assert_array_equal(state.window, tokens[:, 5:])
    expected = model(Tensor(tokens[:, 5:]))[:, -1].log_softmax()
    np.testing.assert_allclose(log_probs, expected.numpy(), atol=1e-13)
    assert np.exp(log_probs).sum() == pytest.approx(1)


def test_a_long_prompt_is_read_from_its_end():
    model, tokens = gpt_with_large_weights(), ids(2, 20).numpy()
    np.testing.assert_array_equal(model.start(tokens)[0], model.start(tokens[:, -8:])[0])


def test_a_context_of_one_token_works():
    model, prompt = gpt_with_large_weights(block_size=1), ids(2, 3).numpy()
    np.testing.assert_array_equal(written(model, prompt, True, seed=1), written(model, prompt, False, seed=1))


@pytest.mark.parametrize("use_cache", [True, False])
def test_rows_can_be_selected_from_a_state(use_cache):
    model, tokens = gpt_with_large_weights(), ids(3, 5).numpy()
    _, state = model.start(tokens, use_cache)
    rows, following = np.array([2, 2, 0]), np.array([4, 9, 1])
    log_probs, _ = model.step(following, state.select(rows))
    expected, _ = model.start(np.concatenate([tokens[rows], following[:, None]], axis=1))
    np.testing.assert_allclose(log_probs, expected, atol=1e-13)


# Shorter and longer than the context of 8 tokens.
UNEQUAL = [[3], [1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8, 9, 7], [9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8], [2, 7]]


@both_positions
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "settings", [pytest.param({"temperature": 0.0}, marks=pytest.mark.slow), {"temperature": 1.0, "seed": 5}]
)
def test_a_batch_of_unequal_prompts_gives_the_texts_of_single_prompts(positions, use_cache, settings):
    """20 tokens in a context of 8: each row becomes full several times, at different steps."""
    model = gpt_with_large_weights(positions=positions)
    together = written(model, UNEQUAL, use_cache, **settings)
    for row, prompt in enumerate(UNEQUAL):
        alone = written(model, [prompt], use_cache, first_row=row, **settings)
        np.testing.assert_array_equal(together[row : row + 1], alone)


@both_positions
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), pytest.param("float32", 1e-4, marks=pytest.mark.slow)]
)
def test_a_batch_of_unequal_prompts_gives_the_predictions_of_single_prompts(positions, use_cache, dtype, tolerance):
    model = gpt_with_large_weights(dtype, positions=positions)
    log_probs, state = model.start(UNEQUAL, use_cache)
    alone = [model.start([prompt], use_cache) for prompt in UNEQUAL]
    for _ in range(12):
        np.testing.assert_allclose(log_probs, np.concatenate([row for row, _ in alone]), rtol=0, atol=tolerance)
        tokens = ids(len(UNEQUAL)).numpy()
        log_probs, state = model.step(tokens, state)
        alone = [model.step(token, before) for token, (_, before) in zip(tokens[:, None], alone, strict=True)]
        for text, (_, one) in zip(state.texts(), alone, strict=True):
            np.testing.assert_array_equal(text, one.window[0])


@pytest.mark.parametrize("use_cache", [True, False])
def test_rows_of_unequal_lengths_can_be_selected_from_a_state(use_cache):
    model = gpt_with_large_weights()
    _, state = model.start(UNEQUAL, use_cache)
    rows, following = np.array([4, 0, 4]), np.array([4, 9, 1])
    log_probs, _ = model.step(following, state.select(rows))
    for row, token, found in zip(rows, following, log_probs, strict=True):
        expected, _ = model.start([[*UNEQUAL[row], token]])
        np.testing.assert_allclose(found, expected[0], atol=1e-12)


def test_unequal_prompts_work_on_every_device(device):
    model = gpt_with_large_weights("float32").to(device)
    log_probs, state = model.start(UNEQUAL)
    expected, _ = gpt_with_large_weights("float32").start(UNEQUAL)
    np.testing.assert_allclose(log_probs, expected, atol=1e-5)
    model.step(np.array([1, 2, 3, 4, 5]), state)


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="a prompt is empty"):
        gpt_with_large_weights().start([[1, 2], []])


# --- from weights ---------------------------------------------------------------------------------------------


def test_a_model_is_restored_from_its_weights():
    model, tokens = gpt_with_large_weights("float32", dropout=0.3), ids(2, 6)
    again = GPT.from_weights(replace(model.config, dropout=0.1), model.state_dict(), here())
    assert again.config.dropout == 0.1
    np.testing.assert_array_equal(again.eval()(tokens).numpy(), model.eval()(tokens).numpy())


def test_weights_of_another_model_are_refused():
    model = small()
    with pytest.raises(CheckpointError, match=r"describe a GPT of 1,\d+,\d+ parameters, but the weights have 3,\d+"):
        GPT.from_weights(replace(model.config, n_layer=900), model.state_dict())
    renamed = {name.replace("mixer", "mixture"): array for name, array in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"do not fit the model's settings: missing: .*mixer"):
        GPT.from_weights(model.config, renamed)
