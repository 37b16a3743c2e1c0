"""Recomputing: the same gradients, and less memory."""

import functools
import weakref

import pytest

from tinygrad_lite import Tensor, manual_seed, no_grad, recompute
from tinygrad_lite import functional as F
from tinygrad_lite.nn import Linear, Module


class Counted(Module):
    """A map with dropout that counts its calls."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.calls = Linear(4, 8), Linear(8, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.down(F.dropout(self.up(x).gelu(), 0.5)) + x


@pytest.mark.parametrize("how", ["of a result", "nested", "of a constant", "frozen"])
def test_recompute_gives_the_same_gradients_to_the_last_bit(how):
    gradients, calls = [], []
    for recomputes in (False, True):
        manual_seed(3)
        module, x = Counted(), Tensor.randn(5, 4)
        x.requires_grad_(how != "of a constant")
        module.up.weight.requires_grad_(how != "frozen")
        maybe = functools.partial(functools.partial, recompute) if recomputes else lambda function: function
        run = once = maybe(module)
        if how == "nested":
            run = maybe(lambda x, once=once: once(once(x)))
        for _ in range(2):  # gradients add up
            y = run(x * 2 if how == "of a result" else x)
            (y * y).sum().backward()
        calls.append(module.calls)
        gradients.append([None if p.grad is None else p.grad.tolist() for p in [x, *module.parameters()]])
    assert calls == ([4, 12] if how == "nested" else [2, 4])
    assert gradients[0] == gradients[1]
    assert sum(gradient is None for gradient in gradients[1]) == (how in ("of a constant", "frozen"))


def test_recompute_keeps_only_the_arguments():
    x = Tensor.ones(100, requires_grad=True)
    inside = []

    def function(x):
        inside.append(weakref.ref((y := x.exp()).data))
        return y.exp()

    y = recompute(function, x)
    assert inside[0]() is None
    y.sum().backward()
    assert len(inside) == 2
    assert inside[1]() is None


def test_recompute_without_a_graph_is_a_call():
    module, x = Counted(), Tensor.ones(2, 4, requires_grad=True)
    with no_grad():
        assert not recompute(module, x).requires_grad
    assert not recompute(lambda x: x * 2, Tensor.ones(2)).requires_grad
    assert recompute(lambda x: x, x) is x
    assert module.calls == 1
    y = recompute(module, x).sum()
    with no_grad():
        y.backward()  # the second call builds a graph all the same
    assert module.calls == 3
    assert x.grad is not None


def test_recompute_refuses_what_it_cannot_compute_again():
    module, x = Counted(), Tensor.ones(2, 4, requires_grad=True)
    with pytest.raises(TypeError, match="recompute: the function must return one tensor, not a tuple"):
        recompute(lambda x: (x, x), x)
    for changed in (x, module.up.weight):
        y = recompute(module, x)
        changed.mark_written()
        with pytest.raises(RuntimeError, match="'recompute' still needs was overwritten"):
            y.sum().backward()
    y = recompute(module, x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="freed by an earlier backward"):
        y.backward()
