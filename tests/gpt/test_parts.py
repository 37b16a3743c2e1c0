"""Parts that became common after GPT-2, several at a time: the model computes, learns and generates correctly."""

from dataclasses import replace

import numpy as np
import pytest

from gpt.config import GPTConfig
from gpt.model import GPT
from tests.gpt.combined_settings import COMBINED, LLAMA, QWEN, SPEED_RUN
from tests.places import fill, here
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.device import random_key
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.transformer import MultiHeadAttention
from workshop.decoding.sampling import generate

rng = np.random.default_rng(12)
combined = pytest.mark.parametrize("settings", COMBINED.values(), ids=COMBINED)


def gpt_with_large_weights(dtype="float64", **changes):
    """A GPT of two blocks over 11 tokens with a context of 8, and weights so large that every part matters."""
    manual_seed(3)
    config = GPTConfig(**{"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 12} | changes)
    assert not config.misfit()
    model, numbers = GPT(config).to(here(), dtype), np.random.default_rng(1)
    for parameter in model.parameters():
        fill(parameter, numbers.standard_normal(parameter.shape) * 0.3)
    return model.eval()


def ids(*shape):
    return Tensor(rng.integers(0, 11, shape))


def gradients(model, batch):
    model.zero_grad()
    with random_key(5):
        model.loss(batch).backward()
    return {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}


# --- learning -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SPEED_RUN, QWEN], ids=["speed run", "qwen"])
def test_the_gradients_of_all_parameters_are_right(settings):
    model, batch = gpt_with_large_weights(n_layer=1, **settings), (ids(2, 5), ids(2, 5))
    gradcheck(lambda *parameters: model.loss(batch), model.parameters(), directions=1)


@pytest.mark.torch
@pytest.mark.parametrize("settings", [SPEED_RUN, LLAMA, QWEN], ids=["speed run", "llama", "qwen"])
def test_torch_computes_the_same_loss_and_gradients(settings):
    torch = pytest.importorskip("torch")
    model, batch = gpt_with_large_weights(**settings), (ids(2, 6), ids(2, 6))
    weights = {name: torch.tensor(array.copy(), requires_grad=True) for name, array in model.state_dict().items()}
    tokens, targets = (torch.tensor(x.numpy()) for x in batch)
    logits = torch_logits(torch, weights, model.config, tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    assert model.loss(batch).item() == pytest.approx(loss.item(), rel=1e-13)
    for name, gradient in gradients(model, batch).items():
        np.testing.assert_allclose(gradient, weights[name].grad.numpy(), rtol=1e-9, atol=1e-14, err_msg=name)


def torch_logits(torch, weights, config, tokens):
    """A GPT with RMS norms and rotary positions, in PyTorch's own operations: (B, T) -> (B, T, V)."""
    f, width, eps = torch.nn.functional, config.head_width, config.norm_eps

    def norm(x, name):
        return f.rms_norm(x, x.shape[-1:], weights.get(f"{name}.weight"), eps)

    def linear(x, name):
        return f.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    speeds = config.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(tokens.shape[1], dtype=torch.float64), speeds)
    cos, sin = angles.cos(), angles.sin()

    def turn(x):
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    x = weights["token_embedding.weight"][tokens]
    for layer in range(config.n_layer):
        name = f"blocks.{layer}"
        h = norm(x, f"{name}.mixer_norm")
        query, key, value = (
            linear(h, f"{name}.mixer.{part}").unflatten(-1, (-1, width)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        if config.qk_norm:
            query, key = norm(query, f"{name}.mixer.query_norm"), norm(key, f"{name}.mixer.key_norm")
        heads = f.scaled_dot_product_attention(
            turn(query), turn(key), value, is_causal=True, scale=config.attention_scale, enable_gqa=True
        )
        x = x + linear(heads.transpose(1, 2).flatten(2), f"{name}.mixer.output")
        h = norm(x, f"{name}.mlp_norm")
        hidden = linear(h, f"{name}.mlp.up")
        if config.activation == "swiglu":
            hidden = f.silu(linear(h, f"{name}.mlp.gate")) * hidden
        else:
            hidden = f.relu(hidden).square()
        x = x + linear(hidden, f"{name}.mlp.down")
    return linear(norm(x, "final_norm"), "token_embedding" if config.tie_weights else "lm_head")


@combined
def test_composed_and_fused_models_agree(settings):
    model, batch = (
        gpt_with_large_weights(dropout=0.1 if here() == "cpu" else 0.0, **settings).train(),
        (ids(3, 8), ids(3, 8)),
    )
    fused = gradients(model, batch)
    with composed():
        expected = gradients(model, batch)
    for name, gradient in expected.items():
        np.testing.assert_allclose(fused[name], gradient, atol=1e-12 * np.abs(gradient).max() + 1e-15, err_msg=name)


@combined
def test_a_blueprint_has_the_sizes_of_the_model(settings):
    model = gpt_with_large_weights(**settings)
    blueprint = GPT.blueprint(model.config)
    assert {name: parameter.shape for name, parameter in blueprint.named_parameters()} == {
        name: parameter.shape for name, parameter in model.named_parameters()
    }
    config = GPTConfig.from_json(model.config.to_json())
    tokens = ids(1, 4)
    again = GPT.from_weights(config, model.state_dict(), here()).eval()
    np.testing.assert_array_equal(again(tokens).numpy(), model(tokens).numpy())


def test_the_sizes_of_llama_and_qwen_take_no_memory():
    """Llama 3 8B and Qwen3 0.6B, with the counts of their reports."""
    modern = {"norm": "rmsnorm", "positions": "rotary", "activation": "swiglu", "n_kv_head": 8}
    llama = GPTConfig(128_256, 8192, 32, 32, 4096, n_inner=14_336, tie_weights=False, **modern)
    assert GPT.blueprint(llama).num_parameters() == 8_030_261_248
    qwen = GPTConfig(151_936, 32_768, 28, 16, 1024, n_inner=3072, head_dim=128, qk_norm=True, **modern)
    assert GPT.blueprint(qwen).num_parameters() == 596_049_920
    assert (qwen.cached_width, llama.cached_width) == (1024, 1024)


def test_residual_projections_of_zero_leave_the_embeddings_unchanged():
    """At first the logits depend only on the token itself; the gradient reaches the last matrix of every branch."""
    manual_seed(1)
    model = GPT(GPTConfig(11, block_size=8, n_layer=2, n_head=2, n_embd=12, zero_init=True, **SPEED_RUN))
    tokens = ids(2, 8)
    embedded = model.token_embedding(tokens)
    logits = model.lm_head(model.final_norm(embedded)).numpy()
    np.testing.assert_allclose(model(tokens).numpy(), logits, rtol=1e-5)
    for name, gradient in gradients(model, (tokens, ids(2, 8))).items():
        is_last = name.endswith(("output.weight", "down.weight"))
        assert is_last == (model.state_dict()[name] == 0).all()
        assert gradient.any() or not is_last, name


def test_the_head_can_be_untied():
    model = gpt_with_large_weights(tie_weights=False)
    assert model.lm_head.weight is not model.token_embedding.weight


def test_grouped_queries_equal_heads_with_copied_keys_and_values():
    """Full attention in which every head of keys and values is copied for its queries gives the same."""
    manual_seed(2)
    grouped = MultiHeadAttention(12, 6, n_kv_head=2, frequencies=(1.0,)).to(here(), "float64")
    full = MultiHeadAttention(12, 6, frequencies=(1.0,)).to(here(), "float64")
    for part in ("query", "output", "key", "value"):
        theirs, ours = getattr(full, part), getattr(grouped, part)
        for name in ("weight", "bias"):
            array = getattr(ours, name).numpy()
            if part in ("key", "value"):
                array = np.repeat(array.reshape(2, 1, 2, -1), 3, axis=1).reshape(getattr(theirs, name).shape)
            fill(getattr(theirs, name), array)
    x = Tensor(rng.standard_normal((2, 5, 12)))
    np.testing.assert_allclose(grouped(x, is_causal=True).numpy(), full(x, is_causal=True).numpy(), atol=1e-14)
    np.testing.assert_allclose(grouped.weights(x).numpy(), full.weights(x).numpy(), atol=1e-14)


def test_rotary_frequencies_are_those_of_llama():
    """Llama's: from one radian per position to about 1 / theta."""
    config = GPTConfig(11, n_head=2, n_embd=16, positions="rotary", rope_theta=10_000.0)
    assert config.frequencies == pytest.approx((1.0, 0.1, 0.01, 0.001))


def test_the_estimate_of_activations_includes_every_part():
    base = GPTConfig(11, block_size=8, n_layer=2, n_head=2, n_embd=12)
    per_token = 8 * 2  # tokens and layers
    assert replace(base, qk_norm=True).activations(1) - base.activations(1) == per_token * 2 * 12
    assert replace(base, activation="swiglu").activations(1) - base.activations(1) == per_token * 4 * 12
    assert base.activations(1) - replace(base, activation="relu2").activations(1) == per_token * 4 * 12
    assert replace(base, norm="rmsnorm", norm_weight=False).activations(1) == base.activations(1)
    once = replace(base, n_layer=1)
    again = [replace(config, recompute=True).activations(1) for config in (base, once)]
    assert again[0] - again[1] == 8 * 12  # a second block keeps its input
    assert again[1] - once.activations(1) == 8 * 12


@pytest.mark.parametrize("settings", [SPEED_RUN, LLAMA, {"bias": True}], ids=["speed run", "llama", "gpt-2"])
def test_recompute_gives_the_same_gradients_to_the_last_bit(settings):
    batches, found = [(ids(3, 8), ids(3, 8)) for _ in range(2)], []
    for recompute in (False, True):
        model = gpt_with_large_weights("float32", dropout=0.2, recompute=recompute, **settings).train()
        losses = []
        for micro_step, batch in enumerate(batches):
            with random_key(5, micro_step):
                loss = model.loss(batch)
            loss.backward()
            losses.append(loss.item())
        found.append((losses, {name: p.grad.numpy().tobytes() for name, p in model.named_parameters()}))
    assert found[0] == found[1]


# --- generating -----------------------------------------------------------------------------------------------


@combined
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [pytest.param("float64", 1e-12, marks=pytest.mark.slow), ("float32", 1e-4)]
)
def test_a_cache_changes_no_prediction(settings, dtype, tolerance):
    """In pieces, and step by step beyond a full context, for a batch of texts of unequal lengths and for each alone."""
    model, tokens = gpt_with_large_weights(dtype, **settings), ids(3, 8)
    with no_grad():
        whole = model(tokens).numpy()
        for pieces in ([1] * 8, [5, 1, 2]):
            caches = model.new_caches()
            parts = [model(part, caches).numpy() for part in tokens.split(pieces, axis=1)]
            np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, atol=tolerance)
    assert caches[0].both.shape[2] == (model.config.n_kv_head or model.config.n_head)
    prompts = [[3], [1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8, 9, 7, 9, 3]]
    states = [model.start(prompts), model.start(prompts, use_cache=False)]
    alone = [model.start([prompt]) for prompt in prompts]
    for _ in range(12):
        together, uncached = (log_probs for log_probs, _ in states)
        np.testing.assert_allclose(together, uncached, rtol=0, atol=tolerance)
        np.testing.assert_allclose(together, np.concatenate([row for row, _ in alone]), rtol=0, atol=tolerance)
        column = rng.integers(0, 11, 3)
        states = [model.step(column, state) for _, state in states]
        alone = [model.step(token, state) for token, (_, state) in zip(column[:, None], alone, strict=True)]


@combined
def test_cached_and_uncached_text_are_equal_beyond_a_full_context(settings):
    model, prompt = gpt_with_large_weights(**settings), ids(2, 7).numpy()
    texts = []
    for use_cache in (True, False):
        log_probs, state = model.start(prompt, use_cache)
        texts.append(list(generate(model.step, log_probs, state, max_new_tokens=30, seed=5)))
    np.testing.assert_array_equal(*texts)
