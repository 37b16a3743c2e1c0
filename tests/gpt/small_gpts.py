"""Small GPTs over 11 tokens with a context of 8, whose prediction depends on every token and every part."""

import numpy as np

from gpt.fast import step  # noqa: F401 (with which a model writes single tokens)
from gpt.model import GPT
from tests.gpt.combined_settings import COMBINED
from tests.gpt.configs import GPTConfig
from tests.places import fill, here
from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.random import random_key

GPT2 = {"bias": True}
EVERY_KIND = {"plain": {}, "gpt-2": GPT2, "sinusoidal positions": {"positions": "sinusoidal"}} | COMBINED
rng = np.random.default_rng(9)


def small_gpt(dtype="float64", **changes):
    """A GPT of two blocks with its first weights, ready to learn."""
    config = GPTConfig(**{"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 12} | changes)
    assert not config.misfit()
    manual_seed(3)
    return GPT(config).to(here(), dtype)


def gpt_with_large_weights(dtype="float64", **changes):
    """One with weights so large that every part of it matters, ready to write."""
    model, numbers = small_gpt(dtype, **changes), np.random.default_rng(1)
    for parameter in model.parameters():
        fill(parameter, numbers.standard_normal(parameter.shape) * 0.3)
    return model.eval()


def ids(*shape, vocab_size=11):
    """Random tokens."""
    return Tensor(rng.integers(0, vocab_size, shape))


def gradients(model, *parts):
    """The sum of the gradients of batches with their shares, always with the same random numbers for dropout."""
    model.zero_grad()
    with random_key(5):
        for batch, share in parts:
            (model.loss(batch) * share).backward()
    return {name: parameter.grad.numpy().copy() for name, parameter in model.named_parameters()}
