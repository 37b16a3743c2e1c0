"""Reported of other programs: caches, positions and windows. Docstrings name the public threads."""

import numpy as np
import pytest

from tests.gpt.configs import has
from tests.gpt.small_gpts import gpt_with_large_weights, ids
from text.decoding.sampling import generate
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.quantize import quantize

rng = np.random.default_rng(6)
POSITIONS = "learned", "rotary", "index", "binary", "alibi", "shaw"  # others: tests/gpt/test_model.py
POSITIONS = [name for name in POSITIONS if has({"positions": name})]


def greedy(model, prompts, count):
    """(B, count) tokens."""
    return np.array([*generate(model.step, *model.start(prompts), max_new_tokens=count, temperature=0)]).T


@pytest.mark.parametrize("positions", POSITIONS)
def test_short_prompts_of_a_batch_are_continued_as_alone(positions):
    """ndif-team/nnsight#673, unslothai/unsloth#3795, rasbt/reasoning-from-scratch#33: padding shifts no position."""
    model = gpt_with_large_weights(block_size=64, n_layer=1, positions=positions)
    prompts = [rng.integers(0, 11, length).tolist() for length in (1, 7, 63, 64)]
    together = model.start(prompts)[0], greedy(model, prompts, 4)
    alone = [(model.start([prompt])[0][0], greedy(model, [prompt], 4)[0]) for prompt in prompts]
    for found, expected in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "settings", [*({"positions": name} for name in POSITIONS), *filter(has, ({"window": 3}, {"mixer": "lstm"}))]
)
def test_a_prompt_in_two_pieces_is_read_as_in_one(settings):
    """Mikyx-1/TinyLLM#17, rasbt/LLMs-from-scratch#697, meta-llama/llama#899: several tokens behind a cache."""
    model, tokens = gpt_with_large_weights(**settings), ids(2, 8)
    whole = model(tokens).numpy()
    for cut in range(1, 8):
        caches = model.new_caches()
        with no_grad():
            parts = [model(part, caches).numpy() for part in tokens.split([cut, 8 - cut], axis=1)]
        np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [None, "int8", "nf4"])
def test_after_each_slide_the_text_is_that_of_a_model_that_reads_its_last_half(kind):
    """mit-han-lab/streaming-llm#93, rajveer43/VeloxQuant-MLX#389: three contexts, with and without the fast step."""
    model = gpt_with_large_weights("float32", n_embd=64)
    if kind:
        quantize(model, kind)
    context = [1, 2, 3]
    for token in greedy(model, [context], 24)[0]:
        assert model(Tensor([context])).numpy()[0, -1].argmax() == token
        context = [*context, token] if len(context) < 8 else [*context[-3:], token]
