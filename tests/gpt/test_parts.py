"""Parts that became common after GPT-2: what each of them means."""

from dataclasses import replace

import numpy as np
import pytest

from gpt.config import GPTConfig
from gpt.model import GPT
from tests.gpt.combined_settings import LLAMA, SPEED_RUN
from tests.gpt.small_gpts import gpt_with_large_weights, gradients, ids
from tests.places import fill, here
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.device import random_key
from tinygrad_lite.transformer import MultiHeadAttention

rng = np.random.default_rng(12)


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
    assert replace(base, qk_norm=True).activations(1) == base.activations(1)  # attention keeps what it normalised
    turned = replace(base, positions="rotary")
    assert replace(turned, qk_norm=True).activations(1) - turned.activations(1) == per_token * 2 * 12
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
