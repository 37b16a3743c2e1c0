"""Recomputing: the same gradients, and less memory."""

import functools
import weakref

import numpy as np
import pytest

from tests.tinygrad_lite.functional import version_cases
from tests.tinygrad_lite.op_cases import CASES, each_of
from tests.tinygrad_lite.test_writing import check_that_writes_are_noticed
from tinygrad_lite import Tensor, manual_seed, no_grad, recompute
from tinygrad_lite import functional as F
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.nn import Dropout, Linear, Module
from tinygrad_lite.quantize import KINDS, QuantizedLinear


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
    y = recompute(module, x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="freed by an earlier backward"):
        y.backward()


# --- both runs are the same, or backward says that they are not ---------------------------------------------------


def again(call):
    """The call inside `recompute`, which captures its arguments instead of being given them."""
    return lambda **arguments: recompute(lambda: call(**arguments))


@each_of([case for case in CASES if case.gradient])
def test_no_write_between_the_runs_changes_a_gradient_of_a_primitive(case):
    def make():
        return {str(i): Tensor(x, requires_grad=True) for i, x in enumerate(case.samples[-1])}

    check_that_writes_are_noticed(again(lambda **arguments: case.fn(*arguments.values())), [make])


@pytest.mark.parametrize("name", [n for n in version_cases.CASES if not n.startswith(("adamw", "muon", "dropout"))])
def test_no_write_between_the_runs_changes_a_gradient_of_a_fused_operation(name):
    cases = list(version_cases.CASES[name].values())
    for arguments in [case for case in cases if not case.get("dropout_p")][:: 1 + len(cases) // 6]:
        check_that_writes_are_noticed(again(REGISTRY[name]), [lambda arguments=arguments: made(arguments)])


def made(arguments):
    return version_cases.tensors(arguments, np.float64)


# What reads the constant c besides the operands of operations with a node: whole numbers, so that it may be an index.
READS = {
    "comparison": lambda x, c: x * (c > 1).cast("float32"),
    "condition": lambda x, c: (c > 1).where(x, 0.0),
    "item": lambda x, c: x * c.sum().item(),
    "array": lambda x, c: x * c.numpy(),
    "another type": lambda x, c: x * c.cast("float64"),
    "detached": lambda x, c: x * c.detach(),
    "whole numbers": lambda x, c: x * c.clip(0, 1),
    "index": lambda x, c: x[c],
    "index in a tuple": lambda x, c: x.unsqueeze(0)[0, c],
    "gather": lambda x, c: x.gather(0, c),
    "one_hot": lambda x, c: x * c.one_hot(9)[:, 1],
    "embedding": lambda x, c: F.embedding(c, x.unsqueeze(1)),
    "targets": lambda x, c: F.cross_entropy(x.unsqueeze(0).expand(3, 3), c),
    "mask": lambda x, c: F.scaled_dot_product_attention(*[x.reshape(1, 1, 3, 1)] * 3, mask=c > 1),
    "positions": lambda x, c: F.rotary(x.reshape(1, 3, 1, 1).expand(1, 3, 1, 2), c, (0.5,)),
    "written": lambda x, c: [t := x * 1, t.__setitem__(slice(2), c[1:])][0],
    "filled": lambda x, c: [t := Tensor.zeros(3), t.__setitem__(0, c[1]), t * x][2],
    "copied": lambda x, c: [t := c.zeros_like(), t.__setitem__(..., c), t * x][2],
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("ones", [True, False])
def test_whatever_is_read_may_not_be_overwritten_between_the_runs(name, ones):
    """Also where it would not show in the result, since all elements of x are alike."""
    x, c = Tensor([1.0] * 3 if ones else [1.0, 2.0, 4.0], requires_grad=True), Tensor([2, 1, 0])
    y = recompute(READS[name], x, c)
    expected = READS[name](x, c)
    np.testing.assert_array_equal(y.numpy(), expected.numpy())
    expected.sum().backward()
    right, x.grad = x.grad.tolist(), None
    y.sum().backward()
    assert x.grad.tolist() == right
    y = recompute(lambda: READS[name](x, c))
    c[...] = c.numpy()[::-1].copy()
    with pytest.raises(RuntimeError, match="'recompute' still needs was overwritten"):
        y.sum().backward()


def changed(how, x):
    """A result of `recompute` whose function computes something else from now on."""
    ws = [Tensor([1.0 + i] * 3, requires_grad=True) for i in range(3)]
    array, i, module = np.ones(3, np.float32), 1, Module()
    module.dropout = Dropout(0.5)
    functions = {
        "leaves": lambda t: t * ws[i],
        "numbers": lambda t: t * i,
        "arrays": lambda t: t * array,
        "operations": lambda t: t * 2 if i == 1 else t + 2,
        "fewer": lambda t: t * 2 if i == 1 else t,
        "detached": lambda t: t * 2 if i == 1 else (t * 2).detach(),
        "frozen": lambda t: t * ws[0],
        "evaluation": lambda t: module.dropout(t),
        "buffer": lambda t: [ws[1].detach().__iadd__(1) if i == 2 else None, t * ws[1].detach()][1],
    }
    y = recompute(functions[how], x)
    i, array[0] = 2, 7
    module.eval()
    ws[0].requires_grad_(False)
    return y


@pytest.mark.parametrize(
    "how",
    "leaves numbers arrays operations fewer detached frozen evaluation buffer".split(),
)
def test_a_second_run_that_computes_something_else_is_refused(how):
    size = {"numbers": 0.0, "arrays": 1e-6}.get(how, 1.0)  # the result is the same, or tiny
    x = Tensor([1.5 * size, 2.5 * size, 3.5 * size], requires_grad=True)
    y = changed(how, x)
    with pytest.raises(
        RuntimeError, match=r"^recompute: the function did not compute the same again: whatever it uses"
    ):
        y.sum().backward()


def test_a_function_may_write_into_what_it_makes_but_not_into_what_it_reads():
    x, buffer = Tensor([1.0, 2.0], requires_grad=True), Tensor.zeros(2)

    def fills_its_own(t):
        out = Tensor.zeros(2)
        out[0] = t[1] * t[0]
        out[1] = t[0]
        out += t
        return out

    y = recompute(fills_its_own, x)
    y += 1  # which the second run does not need
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 2.0]

    def counts(t):
        buffer[...] = buffer + 1
        return t * 2

    for function, argument in ((counts, x), (lambda t: t.__setitem__(0, x[1]), x * 1)):
        with pytest.raises(RuntimeError, match=r"^recompute: the function wrote into an argument, or into what"):
            recompute(function, argument)


def test_quantized_weights_may_not_change_between_the_runs():
    linear, x = QuantizedLinear(Linear(4, 3), KINDS["nf4"]), Tensor.ones(2, 4, requires_grad=True)
    for constant in linear.buffers():
        y = recompute(linear, x)
        constant.mark_written()
        with pytest.raises(RuntimeError, match="'recompute' still needs was overwritten"):
            y.sum().backward()
