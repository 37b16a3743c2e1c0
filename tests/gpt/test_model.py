"""The GPT computes, learns and writes correctly, whatever parts it has."""

import math
from dataclasses import replace

import numpy as np
import pytest

from gpt.model import GPT
from tests.gpt.combined_settings import LLAMA, QWEN, SPEED_RUN
from tests.gpt.configs import GPTConfig, has
from tests.gpt.small_gpts import EVERY_KIND, gpt_with_large_weights, gradients, ids, small_gpt
from tests.places import here
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.quantize import quantize
from training.model_config import read_model_config

pytestmark = pytest.mark.every_device

rng = np.random.default_rng(9)
every_kind = pytest.mark.parametrize("settings", EVERY_KIND.values(), ids=EVERY_KIND)
both_positions = pytest.mark.parametrize("positions", ["learned", "sinusoidal"])


# --- what it computes -----------------------------------------------------------------------------------------


@both_positions
def test_the_loss_of_an_untrained_model_is_that_of_guessing(positions):
    """Its loss is ln V: as if all V tokens were equally probable."""
    manual_seed(1)
    model = GPT(GPTConfig(vocab_size=65, block_size=32, n_layer=4, n_head=4, n_embd=64, positions=positions))
    loss = model.loss((ids(4, 32, vocab_size=65), ids(4, 32, vocab_size=65))).item()
    assert loss == pytest.approx(math.log(65), abs=0.1)


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


def test_more_positions_than_the_context_are_refused():
    model = small_gpt()
    caches = model.new_caches()
    with no_grad():
        model(ids(1, 6), caches)
        for tokens, before in ((9, None), (3, caches)):
            with pytest.raises(ValueError, match="GPT: 9 positions do not fit into block_size 8"):
                model(ids(1, tokens), before)


def test_initialisation_reaches_all_matrices():
    manual_seed(1)
    model = GPT(GPTConfig(vocab_size=100, block_size=64, n_layer=3, n_head=4, n_embd=128, bias=True))
    for name, parameter in model.named_parameters():
        values = parameter.numpy()
        assert values.dtype == np.float32
        if parameter.ndim == 2:
            is_residual = name.endswith(("mixer.output.weight", "mlp.down.weight"))
            deviation = 0.02 / math.sqrt(6) if is_residual else 0.02
            assert values.std() == pytest.approx(deviation, rel=0.03), name
            assert abs(values.mean()) < deviation / 20
        else:
            assert np.unique(values).tolist() == ([1.0] if "norm.weight" in name else [0.0]), name


# --- gradients ------------------------------------------------------------------------------------------------


DIFFERENTIATED = [{"dropout": 0.1, "positions": "learned", "bias": True}, {"dropout": 0.1, "positions": "sinusoidal"}]
DIFFERENTIATED += [kind | {"n_layer": 1} for kind in (SPEED_RUN, LLAMA, QWEN) if has(kind)]


@pytest.mark.parametrize("settings", DIFFERENTIATED, ids=str)
def test_the_gradients_of_all_parameters_are_right(settings):
    model, batch = gpt_with_large_weights(**settings).train(), (ids(2, 5), ids(2, 5))
    gradcheck(lambda *parameters: model.loss(batch), model.parameters(), directions=2)


@every_kind
def test_composed_and_fused_models_agree(settings):
    dropout = 0.1 if here() == "cpu" else 0.0
    model, batch = gpt_with_large_weights(dropout=dropout, **settings).train(), (ids(3, 8), ids(3, 8))
    fused = gradients(model, (batch, 1.0))
    with composed():
        expected = gradients(model, (batch, 1.0))
    for name, gradient in expected.items():
        np.testing.assert_allclose(fused[name], gradient, atol=1e-12 * np.abs(gradient).max() + 1e-15, err_msg=name)


# --- generating -----------------------------------------------------------------------------------------------


# Shorter and longer than the context of 8 tokens.
UNEQUAL = [[3], [1, 4, 1, 5, 9], [9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8], [2, 6, 5, 3, 5, 8, 9, 7], [2, 7]]
# In float32 for every kind of state.
CACHED = [(settings, "float64", 1e-12) for settings in EVERY_KIND.values()]
CACHED += [(one, "float64", 1e-12) for one in ({"positions": name} for name in "index binary alibi shaw".split())]
OF_EVERY_STATE = [EVERY_KIND[kind] for kind in "gpt-2 rnn lstm hyena mamba2".split() if kind in EVERY_KIND]
CACHED += [(settings, "float32", 1e-4) for settings in OF_EVERY_STATE]


@pytest.mark.parametrize(("settings", "dtype", "tolerance"), [row for row in CACHED if has(row[0])], ids=str)
def test_a_cache_changes_no_prediction(settings, dtype, tolerance):
    """In pieces, and step by step beyond a full context, for a batch of texts of unequal lengths and for each alone."""
    model, tokens = gpt_with_large_weights(dtype, **settings), ids(3, 8)
    with no_grad():
        whole = model(tokens).numpy()
        for pieces in ([1] * 8, [3, 1, 4], *([cut, 8 - cut] for cut in (1, 4, 7))):
            caches = model.new_caches()
            parts = [model(part, caches).numpy() for part in tokens.split(pieces, axis=1)]
            np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=tolerance)
    if model.config.mixer == "attention":
        assert (caches[0].length, caches[0].both.shape[2]) == (8, model.config.n_kv_head or model.config.n_head)
    states = [model.start(UNEQUAL), model.start(UNEQUAL, use_cache=False)]
    assert states[1][1].caches is None
    alone = [model.start([prompt]) for prompt in UNEQUAL]
    for _ in range(9):
        for log_probs, state in states:
            np.testing.assert_allclose(log_probs, np.concatenate([row for row, _ in alone]), rtol=0, atol=tolerance)
            for text, (_, one) in zip(state.texts(), alone, strict=True):
                np.testing.assert_array_equal(text, one.window[0])
        column = ids(len(UNEQUAL)).numpy()
        states = [model.step(column, state) for _, state in states]
        alone = [model.step(token, state) for token, (_, state) in zip(column[:, None], alone, strict=True)]


FEW_BITS = [pytest.param(kind, marks=pytest.mark.cpu_only("few bits are for the CPU")) for kind in ("int8", "nf4")]


@pytest.mark.parametrize("kind", [None, *FEW_BITS])
def test_after_each_slide_the_text_is_that_of_a_model_that_reads_its_last_half(kind):
    """Three contexts; and a long prompt is read from its end. mit-han-lab/streaming-llm#93, VeloxQuant-MLX#389."""
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-12))[: 1 if kind else 2]:
        model, context = gpt_with_large_weights(dtype, n_embd=64), [*range(1, 9)]
        if kind:
            quantize(model, kind)
        log_probs, state = model.start([[7, 3, 0, *context]])
        for _ in range(24):
            expected = model(Tensor([context]))[:, -1].log_softmax().numpy()
            np.testing.assert_allclose(log_probs, expected, rtol=0, atol=tolerance)
            token = log_probs.argmax(-1)
            log_probs, state = model.step(token, state)
            context = [*context, *token] if len(context) < 8 else [*context[-3:], *token]
            np.testing.assert_array_equal(state.window, [context])


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("prompts", [[[n, 2, n + 3, 4, 5] for n in range(5)], UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("rows", [[4, 0, 4], [4, 0, 4, 1, 0]], ids=["fewer", "as many"])
def test_rows_can_be_selected_from_a_state(prompts, use_cache, rows):
    model, following = gpt_with_large_weights(), np.array([4, 9, 1, 2, 3])[: len(rows)]
    log_probs, _ = model.step(following, model.start(prompts, use_cache)[1].select(np.array(rows)))
    for row, token, found in zip(rows, following, log_probs, strict=True):
        expected, _ = model.start([[*prompts[row], token]])
        np.testing.assert_allclose(found, expected[0], atol=1e-13)


def test_unequal_prompts_work_on_every_device(device):
    model = gpt_with_large_weights("float32").to(device)
    log_probs, state = model.start(UNEQUAL)
    expected, _ = gpt_with_large_weights("float32").start(UNEQUAL)
    np.testing.assert_allclose(log_probs, expected, atol=1e-5)
    model.step(np.array([1, 2, 3, 4, 5]), state)


# --- from weights ---------------------------------------------------------------------------------------------


@every_kind
def test_a_blueprint_has_the_sizes_of_the_model_and_weights_restore_it(settings):
    model, tokens = gpt_with_large_weights("float32", dropout=0.3, **settings), ids(2, 6)
    blueprint = GPT.blueprint(model.config)
    shapes = [[(name, p.shape) for name, p in one.named_parameters()] for one in (blueprint, model)]
    assert (shapes[0], blueprint.num_parameters()) == (shapes[1], model.num_parameters())
    assert blueprint.flops_per_token() == model.flops_per_token()
    config = replace(read_model_config(GPTConfig, model.config.to_json()), dropout=0.1)
    again = GPT.from_weights(config, model.state_dict(), here())
    assert again.config.dropout == 0.1
    np.testing.assert_array_equal(again.eval()(tokens).numpy(), model(tokens).numpy())


def test_weights_of_another_model_are_refused():
    model = small_gpt()
    with pytest.raises(CheckpointError, match=r"describe a GPT of 1\d+,\d+ parameters, but the weights have 3,\d+"):
        GPT.from_weights(replace(model.config, n_layer=90), model.state_dict())
    renamed = {name.replace("mixer", "mixture"): array for name, array in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"do not fit the model's settings: missing: .*mixer"):
        GPT.from_weights(model.config, renamed)


# --- parts that became common after GPT-2 -----------------------------------------------------------------------


def test_residual_projections_of_zero_leave_the_embeddings_unchanged():
    """At first the logits depend only on the token itself; the gradient reaches the last matrix of every branch."""
    manual_seed(1)
    model = GPT(GPTConfig(11, block_size=8, n_layer=2, n_head=2, n_embd=12, zero_init=True, **SPEED_RUN))
    tokens = ids(2, 8)
    embedded = model.token_embedding(tokens)
    logits = model.lm_head(model.final_norm(embedded)).numpy()
    np.testing.assert_allclose(model(tokens).numpy(), logits, rtol=1e-5)
    for name, gradient in gradients(model, ((tokens, ids(2, 8)), 1.0)).items():
        is_last = name.endswith(("output.weight", "down.weight"))
        assert is_last == (model.state_dict()[name] == 0).all()
        assert gradient.any() or not is_last, name
