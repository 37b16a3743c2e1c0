"""Checks of chapter 12."""

import numpy as np
from compare import same
from traffic import Traffic, count

from gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.flops import linear_flops
from tinygrad_lite.random import keyed_rng


def flops(exercise):
    """Six operations for each weight and token: two forward, four backward. Which matrices are (C, C), which (C, 4 C)?

    Looking up a token in a table multiplies nothing.
    """
    for n_layer, n_embd, vocab_size, tokens in ((2, 8, 5, 3), (3, 4, 7, 10)):
        model = GPT(GPTConfig(vocab_size=vocab_size, block_size=4, n_layer=n_layer, n_head=1, n_embd=n_embd))
        right = 3 * linear_flops(model) * tokens
        found = exercise.flops(n_layer, n_embd, vocab_size, tokens)
        assert found == right, (
            f"with {n_layer} layers, C = {n_embd}, V = {vocab_size} and {tokens} tokens, {found} is "
            f"{'more' if found > right else 'less'} than the operations of the project's model"
        )


def PASSES(exercise):
    """Four lines: -x, exp, + 1, and the division. A number such as 1 costs nothing."""
    x = Tensor.ones(20, 50)
    right = round(count(exercise.silu_composed, x).passes)
    assert right == exercise.PASSES, f"{exercise.PASSES} is not what is counted when the four operations are watched"


def silu(exercise):
    """With s = 1 / (1 + e^-x), y is x s, and ds/dx = s (1 - s). The slope can be computed in the forward pass."""
    x = Tensor(keyed_rng(0, "chapter 12").normal(0, 2, (30, 10)), requires_grad=True)
    with Traffic() as traffic:
        y = exercise.silu(x)
    right = exercise.silu_composed(x)
    same(y.numpy(), right.numpy(), "the values", rtol=0, atol=1e-6)
    gradcheck(exercise.silu, [Tensor(x.numpy().astype(np.float64), requires_grad=True)])
    assert traffic.operations == 1, f"your silu makes {traffic.operations} nodes, it must be one"
    kept = traffic.kept / x.data.nbytes
    assert kept < 1.5, f"for its derivative, silu keeps {kept:.1f} times as many bytes as x has"


def update(exercise):
    """A slice of the columns from about N rank / W to N (rank + 1) / W; its gradient is the sum of all rows."""
    rng, lr = keyed_rng(1, "chapter 12"), 0.1
    for size, n in ((2, 6), (4, 9)):
        before, gradients = rng.normal(0, 1, n), rng.normal(0, 1, (size, n))
        weights, times = before.copy(), np.zeros(n, int)
        for rank in reversed(range(size)):  # in any order
            was = weights.copy()
            exercise.update(weights, gradients.copy(), lr, rank)
            changed = weights != was
            times += changed
            assert n // size <= changed.sum() <= -(-n // size), (
                f"process {rank} of {size} changes {changed.sum()} of {n} weights"
            )
        assert times.max() <= 1, f"with {size} processes, weight {times.argmax()} is changed by {times.max()} of them"
        assert times.min() == 1, f"with {size} processes, weight {times.argmin()} of {n} is changed by none"
        same(weights, before - lr * gradients.sum(0), f"with {size} processes, the weights", rtol=0, atol=1e-12)
