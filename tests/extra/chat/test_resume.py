"""A conversation continues from what has been read of it."""

import numpy as np

from extra.chat.interactive import resume
from gpt.fast.step_cuda import FastStepCuda
from tests.gpt.combined_settings import COMBINED
from tests.gpt.fast.test_step import make_model
from tests.gpt.fast.test_step_cuda import TOKENS
from tests.tinygrad_lite.test_generator import Successor
from tinygrad_lite.device import on_host
from tinygrad_lite.functional.registry import composed


def test_tokens_in_the_cache_are_not_read_again():
    model = Successor()
    log_probs, state = model.start([[1, 2]])
    for prompt, new in (([1, 2, 5], [5]), ([1, 2, 5], [5]), ([1, 3], [3]), ([1, 3, 4, 5, 6], [3, 4, 5, 6]), ([3], [3])):
        del model.given[:]
        log_probs, state = resume(model, prompt, state)
        assert (model.given, log_probs.argmax()) == ([[new]], prompt[-1] + 1)
        assert state.window.tolist() == [prompt[-4:]]


def test_a_conversation_is_resumed(cuda):
    """The general step reads more tokens after those of the fast one, from the same caches."""
    model, text = make_model("float32", **COMBINED["qwen"]).to(cuda), TOKENS[0]
    _, state = model.start(text[None, :3])
    for token in text[3:6]:
        _, state = model.step(np.array([token]), state)
    assert type(state.fast) is FastStepCuda
    found, state = resume(model, text[:9], state)
    following, _ = model.step(text[9:10], state)
    for log_probs, length in ((found, 9), (following, 10)):
        with composed():
            expected, _ = model.start(text[None, :length])
        np.testing.assert_allclose(on_host(log_probs), expected, rtol=0, atol=2e-5)
