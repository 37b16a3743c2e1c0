"""What someone who knows torch or NumPy types in the second hour: it works as there, or a sentence says what to write.

Each row is a small program that once ran, or failed, without a word about what it meant.
"""

import copy
import math
import pickle
import re

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor, nn, no_grad, optim
from tinygrad_lite import functional as F

# --- calls that are refused -------------------------------------------------------------------------------------


def leaf(*shape: int) -> Tensor:
    return Tensor(np.arange(1.0, 1 + math.prod(shape)).reshape(shape), dtype="float32", requires_grad=True)


def assign(layer, name, value):
    setattr(layer, name, value)


def attention(x, *more, **options):
    return F.scaled_dot_product_attention(*[x.reshape(1, 1, 2, 3)] * 3, *more, **options)


def grown(optimizer):
    optimizer.param_groups[0]["params"].append(nn.Parameter([1.0]))
    return optimizer


def three_parts():
    return nn.Sequential(nn.Linear(2, 2), Tensor.relu, nn.Linear(2, 1))


def child_with_parent():
    parent, child = nn.Module(), nn.Linear(2, 2)
    parent.child, child.parent = child, parent
    return parent


REFUSED = [
    # positions
    (lambda x: x.sum(0, 1), "sum: by position it takes x, axis, and by name keepdim=..."),
    (lambda x: x.std(False), "sum: an axis is a whole number, not False"),
    (lambda x: attention(x, None, 0.1), "scaled_dot_product_attention: by"),
    (lambda x: F.cross_entropy(x, Tensor([0, 1]), x[0]), "cross_entropy: by position it takes logits, targets, and"),
    (lambda x: nn.LayerNorm(4, 1e-12), "LayerNorm: by position it takes width, and by name bias=..., eps=..."),
    (lambda x: nn.LayerNorm((4,)), "a width or another size is one whole number, not (4,)"),
    (lambda x: optim.SGD([x], 0.1, 0.9, 0.5), "SGD: by position it takes params, lr, and by name momentum=..., "),
    (lambda x: optim.Adam([x], 0.1, (0.9, 0.98)), "AdamW: by position it takes params, lr, and by name betas=..., "),
    (lambda x: Tensor([1.0], "float64"), "Tensor: by position it takes data, and by name dtype=..., device=..."),
    (lambda x: x.cat(x, 1), "cat: 1 is not a tensor; an axis is given by name, as in axis=1"),
    (lambda x: x.transpose(0), "transpose: name two of 2 axes, as in x.transpose(0, 1); x.T "),
    (lambda x: Tensor.einsum("ij", x, x), "einsum: 'ij' does not fit one or two tensors of shape [(2, 3), (2, 3)]"),
    (lambda x: Tensor.einsum("i,i,i", *x.T), "einsum: 'i,i,i' does not fit one or two tensors of shape [(2,), "),
    # names
    (lambda x: x.relu(inplace=True), "relu: there is no argument 'inplace'"),
    (lambda x: Tensor.zeros(2, size=3), "zeros: there is no argument 'size'"),
    # meanings
    (lambda x: x.where(x > 0, 0.0), "where: the condition holds float32, not truth values: write (x > 0).where(x, y)"),
    (lambda x: Tensor([5, 7]) // 0, "floordiv: an integer cannot be divided by 0"),
    (lambda x: Tensor([5, 7]) % Tensor([1, 0]), "mod: an integer cannot be divided by 0"),
    (lambda x: x.gather(1, Tensor([[-1], [0]])), "gather: position -1 does not exist: they count from 0 to 2"),
    (lambda x: ~x, "~ is for truth values and integers, not for float32"),
    (lambda x: Tensor([1, 2]).masked_fill(Tensor([True, False]), 2.5), "masked_fill: a tensor of int64 cannot hold 2"),
    (lambda x: Tensor([2]) ** -1, "pow: an integer to a negative power is a fraction"),
    (lambda x: -Tensor([True]), "neg: truth values have no sign: write ~x"),
    (lambda x: x.sum((0, 0)), "sum: an axis occurs twice in (0, 0)"),
    (lambda x: Tensor.arange(3.1, dtype="int64"), "arange: 0, 3.1 and a step of 1 do not count to an end in int64"),
    (lambda x: attention(x, scale=x[0, 0]), "attention: scale is a number"),
    # modules, optimizers
    (lambda x: assign(nn.Linear(2, 3), "weight", x * 0.5), "Linear.weight is a parameter, and a Tensor would not"),
    (lambda x: assign(nn.Linear(2, 3).weight, "data", x), "parameter.data is an array: write p -= y under no_grad()"),
    (lambda x: nn.Module().register_buffer("mean", x), "register_buffer: mean must be a tensor that requires no"),
    (lambda x: optim.AdamW([x], lr=math.nan), "optimizer: lr is nan: use at least 0"),
    (lambda x: optim.AdamW([x], betas=(0.9, 1.0)), "optimizer: betas are (0.9, 1.0): use numbers of at least 0 "),
    (lambda x: no_grad()(lambda: (yield)), "no_grad: <lambda> is a generator: write `with no_grad():` in it"),
    (lambda x: optim.SGD([x], lr=None), "optimizer: lr is None: use a number of at least 0"),
    (lambda x: optim.SGD([x]).clip_grad_norm(math.nan), "clip_grad_norm: max_norm is nan: use at least 0"),
    (lambda x: grown(optim.SGD([x])).step(), "optimizer: a group keeps its parameters: make a new optimizer to"),
    (lambda x: grown(optim.SGD([x])).clip_grad_norm(1.0), "optimizer: a group keeps its parameters"),
    (lambda x: x.sum(0).backward([1.0] * 3), "backward: the gradient is a list, not a tensor of shape (3,)"),
    (lambda x: Tensor.eye(-1), "eye: a size is a whole number of at least 0, not -1"),
    (lambda x: Tensor.rand((2.5,)), "rand: a size is a whole number of at least 0, not 2.5"),
    (lambda x: (x > 2).where(x > 1, x > 3), "where: of truth values, write (condition & x) | (~condition & y)"),
    (lambda x: F.binary_cross_entropy_with_logits(x, x, reduction="exp"), "binary_cross_entropy_with_logits: reduct"),
    (lambda x: F.dropout(x, 0.999999), "dropout: p must be in [0, 1), not 0.999999: above 0.999, 16 bits for each"),
    # NumPy
    (lambda x: np.exp(x), "np.exp: NumPy knows no gradients: write x.exp() or np.exp(x.numpy())"),
    (lambda x: np.ones(3, np.float32).__isub__(x[0]), "np.subtract: NumPy knows no gradients: write x -= y, or x.data"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_could_mean_two_things_is_refused(call, message):
    errors = TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError
    with pytest.raises(errors, match=f"^{re.escape(message)}") as caught:
        call(leaf(2, 3))
    assert "\n" not in str(caught.value)


def test_a_rate_that_a_schedule_spoils_is_refused_at_the_step():
    optimizer = optim.SGD([nn.Parameter([1.0])])
    optimizer.lr = math.nan
    with pytest.raises(ValueError, match="optimizer: lr is nan"):
        optimizer.step()


# --- calls that work --------------------------------------------------------------------------------------------


def values(x):
    return x.tolist() if isinstance(x, Tensor) else x


WORKS = [
    (lambda: Tensor.cat((Tensor([[1]]), Tensor([[2]])), 1), [[1, 2]]),
    (lambda: Tensor([[1, 9], [3, 2]]).max(axis=0), [3, 9]),
    (lambda: Tensor(np.uint8([3])).sum() - 10, -7),
    (lambda: Tensor(np.uint8([200, 2])).prod(), 400),
    (lambda: Tensor([1.0, 3.0]).var(correction=None), 2.0),
    (lambda: ~Tensor([0, 5, -1]), [-1, -6, 0]),
    (lambda: Tensor(5).clip(0, 3) + 1, 4),
    (lambda: Tensor(2.0).sum(0) + Tensor(2.0).softmax(-1), 3.0),
    (lambda: Tensor.where(Tensor([True, False]), 1, 0), [1, 0]),
    (lambda: F.binary_cross_entropy_with_logits(Tensor([0.0] * 2), [0, 1], reduction="none").shape, (2,)),
    (lambda: three_parts()[1](Tensor([-1.0])), [0.0]),
    (lambda: no_grad(lambda x: x * 2)(leaf(2)).requires_grad, False),
    (lambda: np.array([True, False]) & Tensor([True, True]), [True, False]),
    (lambda: nn.ModuleList([nn.Linear(1, 2), nn.Linear(2, 3)])[-1:][0].out_features, 3),
    (lambda: nn.Parameter(Tensor([1.0, 2.0])), [1.0, 2.0]),
    (lambda: len(child_with_parent().parameters()), 2),
    (lambda: repr(child_with_parent()).splitlines()[1], "  child: Linear, 6 parameters: weight (2, 2), bias (2,)"),
]


@pytest.mark.parametrize(("call", "expected"), WORKS)
def test_what_torch_and_numpy_accept_means_the_same(call, expected):
    assert values(call()) == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sigmoid_is_exact_in_both_tails(dtype):
    x = Tensor([-700.0 if dtype == "float64" else -80.0, -20.0, -1.0, 0.0, 3.0, 20.0, 30.0], dtype=dtype)
    x.requires_grad = True
    y = x.sigmoid()
    y.sum().backward()
    exact = [1 / (1 + math.exp(-v)) if v > 0 else math.exp(v) / (1 + math.exp(v)) for v in x.tolist()]
    slopes = [math.exp(-abs(v)) / (1 + math.exp(-abs(v))) ** 2 for v in x.tolist()]
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(y.numpy(), exact, rtol=tolerance)
    np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=tolerance)
    x.grad = None
    loss = -x.sigmoid().log()
    loss.sum().backward()
    np.testing.assert_allclose(loss.numpy()[1], 20 + math.log1p(math.exp(-20)), rtol=tolerance)
    np.testing.assert_allclose(x.grad.numpy()[1], -1 / (1 + math.exp(-20)), rtol=tolerance)


@pytest.mark.parametrize("target", [0.0, 0.25, 1.0])
def test_binary_cross_entropy_is_its_definition_and_its_gradient_p_minus_t(target):
    x = Tensor([-3.0, 0.0, 2.0], dtype="float64", requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, Tensor([target] * 3, dtype="float64"), reduction="sum")
    p = 1 / (1 + np.exp(-x.numpy()))
    assert loss.item() == pytest.approx(-(target * np.log(p) + (1 - target) * np.log(1 - p)).sum(), rel=1e-12)
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy(), p - target, rtol=1e-12)
    far = F.binary_cross_entropy_with_logits(Tensor([-200.0, 200.0]), Tensor([1.0, 0.0]), reduction="none")
    assert far.tolist() == [200.0, 200.0]


# --- modules and optimizers -------------------------------------------------------------------------------------


class Net(nn.Module):
    """Parameters in every kind of container, a buffer that is saved and one that is not, and a plain constant."""

    def __init__(self):
        super().__init__()
        self.scales = [nn.Parameter([1.0]), nn.Parameter([2.0])]
        self.pair = (nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
        self.named = {"a": nn.Linear(2, 1), "deep": [[nn.Parameter([3.0])]]}
        self.register_buffer("mean", Tensor([0.5, 0.5]))
        self.register_buffer("mask", Tensor([True, False]), persistent=False)
        self.constant = Tensor([7.0])


NAMES = ["scales.0", "scales.1", "named.deep.0.0", "pair.0.weight", "pair.0.bias", "pair.1.weight", "named.a.weight"]
NAMES += ["named.a.bias"]


def test_parameters_are_found_in_lists_tuples_and_dicts():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_modules()] == ["", "pair.0", "pair.1", "named.a"]
    net.eval()
    assert not net.pair[0].training


def test_buffers_are_saved_and_move():
    net, other = Net(), Net()
    assert [*net.state_dict()] == [*NAMES, "mean"]
    assert [(name, persistent) for name, _, persistent in net.named_buffers()] == [("mean", True), ("mask", False)]
    net.mean = net.mean * 0.5  # as a running mean is kept
    other.load_state_dict(net.state_dict())
    assert other.mean.tolist() == [0.25, 0.25]
    net.to(here(), "float64")
    assert (str(net.mean.dtype), str(net.mask.dtype), str(net.constant.dtype)) == ("float64", "bool", "float32")


OPTIMIZERS = [
    lambda m: optim.AdamW(optim.decay_groups(m, 0.1), lr=0.01),
    lambda m: optim.SGD(m.named_parameters(), lr=0.01, momentum=0.9),
    lambda m: optim.Muon(optim.muon_groups(m, 0.1), lr=0.01),
]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda all: pickle.loads(pickle.dumps(all))], ids=["copy", "pickle"])
@pytest.mark.parametrize("make", OPTIMIZERS, ids=["adamw", "sgd", "muon"])
def test_copies_of_a_model_and_its_optimizer_train(copied, make):
    def steps(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            (model(Tensor.ones(3, 2)) ** 2).sum().backward()
            optimizer.step()

    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    optimizer = make(model)
    steps(model, optimizer, 2)
    twin, its = copied((model, optimizer))
    before = {name: array.copy() for name, array in model.state_dict().items()}
    steps(twin, its, 3)
    np.testing.assert_equal(model.state_dict(), before)  # the original stays
    steps(model, optimizer, 3)
    for mine, other in ((model, twin), (optimizer, its)):
        np.testing.assert_equal(mine.state_dict(), other.state_dict())
    assert its.steps == 5
