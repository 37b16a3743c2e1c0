"""The table of operations that `test_ops.py` goes through.

A row has a call of an operation, the right result, and the arrays to try it on.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinygrad_lite import Tensor

Arrays = tuple[np.ndarray, ...]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """One way to call an operation. `ref(*arrays)` gives the right result."""

    label: str
    fn: Callable[..., Tensor]
    ref: Callable[..., Any]
    samples: list[Arrays]
    gradient: bool = True

    @property
    def op(self) -> str:
        """The operation's name: the label up to the first space."""
        return self.label.split()[0]


# --- the arrays to try ------------------------------------------------------------------------------------------


def draw(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return np.asarray(RNG.uniform(low, high, shape))


def each(*shapes: tuple[int, ...], **bounds: float) -> list[Arrays]:
    """One array per sample."""
    return [(draw(*shape, **bounds),) for shape in shapes]


def unary(low: float = -2.0, high: float = 2.0) -> list[Arrays]:
    """A scalar, up to three axes, empty arrays, and views that are not contiguous."""
    base = draw(4, 6, low=low, high=high)
    views = [base.T, base[::2, ::-1], base[1:3][:, 2:5].T]
    return [*each((), (3,), (2, 3), (2, 1, 3), (0,), (2, 0, 3), low=low, high=high), *((view,) for view in views)]


def binary(**bounds: float) -> list[Arrays]:
    """Equal shapes, stretched ones on either side or on both, empty ones, and a view."""
    shapes = [((), ()), ((2, 3), (2, 3)), ((3,), (2, 3)), ((2, 1, 3), (4, 1)), ((2, 1), (1, 3)), ((1,), (0,))]
    shapes += [((0, 3), (3,)), ((0, 1), (1, 3)), ((), (0,)), ((1, 3), (1, 4, 3))]
    pairs = [(draw(*x, **bounds), draw(*y, **bounds)) for x, y in shapes]
    return [*pairs, (draw(3, 2, **bounds).T, draw(2, 6, **bounds)[:, ::-2])]


def pairs_of(*shapes: tuple[tuple[int, ...], ...]) -> list[Arrays]:
    return [tuple(draw(*shape) for shape in pair) for pair in shapes]


def ids(like: Any, numbers: Any) -> Any:
    """Positions or truth values as a tensor on the other tensor's device; beside an array as an array."""
    return Tensor(np.asarray(numbers), device=like.device) if isinstance(like, Tensor) else np.asarray(numbers)


def same(label: str, fn: Callable[..., Any], samples: list[Arrays], gradient: bool = True) -> Case:
    """A call that is written alike for a tensor and for NumPy's array."""
    return Case(label, fn, fn, samples, gradient=gradient)


def constant(label: str, fn: Callable[..., Any], samples: list[Arrays], ref: Callable[..., Any] | None = None) -> Case:
    """A call whose result has no gradient; without `ref`, it is written alike everywhere."""
    return Case(label, fn, ref, samples, gradient=False) if ref else same(label, fn, samples, gradient=False)


def joined(label: str, fn: Callable[..., Any], ref: Callable[..., Any], *shapes: Any) -> Case:
    """A call that joins two tensors of these shapes."""
    return Case(label, fn, ref, pairs_of(*shapes))


def totals(x: Any, axis: int) -> Any:
    """The sums of e^x over an axis, which stays."""
    return np.exp(x).sum(axis, keepdims=True)


def erf(x: Any) -> Any:
    return np.array([math.erf(v) for v in x.flat]).reshape(x.shape)


MATRICES = pairs_of(((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((2, 2, 3), (3, 4)))
MATRICES += pairs_of(((2, 3), (2, 3, 2)), ((2, 1, 2, 3), (2, 3, 2)), ((3,), (2, 3, 2)), ((2, 2, 3), (3,)))
MATRICES += pairs_of(((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0,), (0,)), ((0, 2, 3), (1, 3, 2)), ((0,), (2, 0, 3)))
OF_TWO_AXES = [*each((2, 3), (0, 2), (1, 1)), (draw(2, 3).T,)]
STRETCHABLE = [*each((3, 1), (3, 4), (1, 3, 1), (2, 3, 4)), (draw(2, 3).T[:, :1],)]
SAME_SHAPES, EMPTY = (((2, 3),) * 2, ((2,),) * 2), ((0, 3),) * 2
ROOM, PLACES = [(1, 0), (2, 3)], np.array([[2, 2, 0], [0, 1, 0]])
SEEN = PLACES > 0
MATRICES += [(draw(3, 2).T, draw(4, 3).T), (draw(2, 3, 2).swapaxes(0, 2), draw(4, 4)[::2])]

# --- the table --------------------------------------------------------------------------------------------------

CASES = [
    same("add", lambda x, y: x + y, binary()),
    Case("add number", lambda x: 2 + x + 1.5, lambda x: x + 3.5, unary()),
    same("sub", lambda x, y: x - y, binary()),
    Case("sub number", lambda x: 2.5 - (x - 1), lambda x: 3.5 - x, unary()),
    same("mul", lambda x, y: x * y, binary()),
    Case("mul itself", lambda x: (3 * x) * x, lambda x: 3 * x * x, unary()),
    same("div", lambda x, y: x / y, binary(low=0.5)),
    Case("div number", lambda x: 2 / x / 4, lambda x: 0.5 / x, unary(low=0.5)),
    Case("pow", lambda x, y: x**y, lambda x, y: x**y, binary(low=0.5)),
    Case("pow square", lambda x: x**2, lambda x: x * x, unary()),
    Case("pow -3", lambda x: x**-3, lambda x: 1 / (x * x * x), unary(high=-0.5)),
    Case("pow 1", lambda x: x**1, lambda x: x * 1, unary()),
    Case("pow 5", lambda x: x**5.0, lambda x: x * x * x * x * x, unary()),
    Case("pow 0.5", lambda x: x**0.5, lambda x: np.sqrt(x), unary(low=0.5)),
    Case("pow 0", lambda x: x**0, lambda x: x * 0 + 1, unary()),
    Case("pow of number", lambda x: 2**x, lambda x: np.exp(x * math.log(2)), unary()),
    Case("mod", lambda x, y: x % y, lambda x, y: np.remainder(x, y), binary(low=0.5)),
    Case("mod of number", lambda x: 7 % x, lambda x: np.remainder(0 * x + 7, x), unary(low=0.5)),
    constant("floordiv", lambda x, y: x // y, binary(low=0.5), lambda x, y: np.floor(x / y)),
    constant("floordiv of number", lambda x: -5 // x // 2, unary(), lambda x: np.floor(np.floor(-5 / x) / 2)),
    Case("neg", lambda x: -x, lambda x: 0 - x, unary()),
    Case("maximum", lambda x, y: x.maximum(y), lambda x, y: np.maximum(x, y), binary()),
    Case("minimum", lambda x, y: x.minimum(y), lambda x, y: np.minimum(x, y), binary()),
    *(
        constant(f"compare {name}", getattr(operator, name), [*binary(), (np.ones(2),) * 2])
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    constant("compare number", lambda x: x != 0.5, unary()),
    *(
        Case(f"einsum {e}", functools.partial(Tensor.einsum, e), functools.partial(np.einsum, e), pairs_of(shapes))
        for e, *shapes in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("bthd, bshd -> bhts", (2, 3, 2, 4), (2, 5, 2, 4)),
            ("cb,a", (2, 3), (4,)),
            ("ijk,jl->l", (2, 3, 2), (3, 4)),
            ("i,->i", (3,), ()),
            ("ijk->kj", (2, 3, 4)),
            ("bij,jb->bi", (2, 3, 4), (4, 2)),
        )
    ),
    Case("unbind axis", lambda x: x.unbind(-1)[0], lambda x: x[..., 0], each((2,), (3, 2))),
    constant("invert", lambda x: ~(x > 0), unary(), lambda x: x <= 0),
    constant("logical and", lambda x, y: (x > 0) & (y > 0), binary()),
    constant("logical or", lambda x, y: (x > 0) | (y > 0), binary()),
    constant("logical xor", lambda x, y: True ^ (x > y), binary(), lambda x, y: x <= y),
    Case("exp", Tensor.exp, np.exp, unary()),
    Case("log", Tensor.log, np.log, unary(low=0.1)),
    Case("sqrt", lambda x: x.sqrt(), lambda x: np.sqrt(x), unary(low=0.1)),
    Case("tanh", lambda x: x.tanh(), lambda x: 1 - 2 / (np.exp(2 * x) + 1), unary()),
    Case("sin", lambda x: x.sin(), lambda x: np.sin(x), unary(-7, 7)),
    Case("cos", lambda x: x.cos(), lambda x: np.cos(x), unary(-7, 7)),
    Case("erf", Tensor.erf, erf, [*unary(), *unary(-7, 7)]),
    Case("relu", lambda x: x.relu(), lambda x: (x + np.abs(x)) / 2, unary()),
    Case("abs", lambda x: x.abs(), lambda x: np.sqrt(x * x), unary()),
    Case("abs of Python", abs, lambda x: np.sqrt(x * x), unary()),
    constant("sign", lambda x: x.sign(), [*unary(), (np.array([0.0, -0.0]),)], lambda x: np.sign(x)),
    Case("clone", lambda x: x.clone(), lambda x: x * 1, unary()),
    Case("clip", lambda x: x.clip(-0.5, 1.0), lambda x: np.clip(x, -0.5, 1.0), unary()),
    Case("clip below", lambda x: x.clip(low=-0.5), lambda x: np.clip(x, -0.5, None), unary()),
    Case("clip above", lambda x: x.clip(high=0.5), lambda x: np.clip(x, None, 0.5), unary()),
    Case("sigmoid", lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x)), unary(-9, 9)),
    Case("silu", lambda x: x.silu(), lambda x: x / (1 + np.exp(-x)), unary(-9, 9)),
    Case("where", lambda x, y: (x > y * 0.5).where(x, y), lambda x, y: np.where(x > y * 0.5, x, y), binary()),
    Case("where number", lambda x: (x > 0).where(x, -1.0), lambda x: np.where(x > 0, x, x * 0 - 1), unary()),
    Case("where wide", lambda x: ids(x, SEEN).where(1.0, x), lambda x: np.where(SEEN, 1.0, x), each((), (3,), (2, 1))),
    Case("masked_fill", lambda x: x.masked_fill(x > 0.5, 7.0), lambda x: np.where(x > 0.5, 7, x), unary()),
    same("matmul", lambda x, y: x @ y, MATRICES),
    same("reshape", lambda x: x.reshape(3, -1), each((2, 3), (3, 4), (6,), (3, 0), (0, 3))),
    Case("reshape to scalar", lambda x: x.reshape(()), lambda x: x[0, 0], each((1, 1))),
    Case("permute", lambda x: x.permute(2, 0, -2), lambda x: np.moveaxis(x, 2, 0), each((2, 3, 4), (2, 0, 1))),
    Case("transpose", lambda x: x.transpose(-1, 0), lambda x: np.swapaxes(x, 0, -1), each((3,), (2, 3), (2, 3, 4))),
    Case("T", lambda x: x.T, lambda x: x.T, each((), (3,), (2, 3), (2, 3, 4))),
    Case("expand", lambda x: x.expand(2, -1, 4), lambda x: np.broadcast_to(x, (2, 3, 4)), STRETCHABLE),
    Case("expand to empty", lambda x: x.expand((0, 3)), lambda x: np.broadcast_to(x, (0, 3)), each((3,), (1, 3), ())),
    same("reshape of a transposed matrix", lambda x: x.T.reshape(-1), OF_TWO_AXES),
    Case("pad", lambda x: x.pad(ROOM, value=9.0), lambda x: np.pad(x, ROOM, constant_values=9.0), OF_TWO_AXES),
    Case("pad with zeros", lambda x: x.pad(ROOM), lambda x: np.pad(x, ROOM), OF_TWO_AXES),
    same("flatten", lambda x: x.flatten(), unary()),
    Case("flatten part", lambda x: x.flatten(1, 2), lambda x: x.reshape(2, 6, 2), each((2, 3, 2, 2), (2, 6, 1, 2))),
    same("squeeze", lambda x: x.squeeze(), each((1, 3, 1), (2, 3), (1,), ())),
    Case("squeeze one", lambda x: x.squeeze(-2), lambda x: x[:, 0], each((2, 1, 3), (1, 1, 2))),
    Case("unsqueeze", lambda x: x.unsqueeze(-1), lambda x: x[..., None], unary()),
    joined("cat", lambda x, y: x.cat(y, axis=-1), lambda x, y: np.concatenate([x, y], -1), ((2, 3), (2, 1))),
    joined("cat itself", lambda x, y: x.cat(y, x), lambda x, y: np.concatenate([x, y, x]), ((2, 3), (1, 3)), EMPTY),
    joined("stack last", lambda x, y: x.stack(y, axis=-1), lambda x, y: np.stack([x, y], -1), ((2, 3),) * 2, ((),) * 2),
    Case("split", lambda x: operator.mul(*x.split(2, axis=1)), lambda x: x[:, :2] * x[:, 2:], each((2, 3), (2, 4))),
    Case("chunk axis", lambda x: x.chunk(3, axis=-1)[-1], lambda x: x[:, 2:], each((2, 3), (0, 4))),
    Case("flip", lambda x: x.flip(), lambda x: np.flip(x, tuple(range(x.ndim))), unary()),
    Case("flip axes", lambda x: x.flip((0, -1)), lambda x: np.flip(x, (0, 2)), each((2, 3, 2))),
    Case("repeat", lambda x: x.repeat(2, 1, 3), lambda x: np.tile(x, (2, 1, 3)), each((), (2,), (2, 3), (2, 0, 3))),
    Case("split sizes", lambda x: x.split((1, 0, 2))[2], lambda x: x[1:], each((3,), (3, 2))),
    Case("tril", lambda x: x.tril(), lambda x: np.tril(x), each((3, 3), (2, 4), (2, 3, 2), (0, 0))),
    Case("triu", lambda x: x.triu(), lambda x: np.triu(x), each((3, 3), (4, 2), (2, 3, 2), (2, 0, 3))),
    Case("triu diagonal", lambda x: x.triu(1), lambda x: np.triu(x, 1), each((3, 3), (2, 4))),
    same("getitem number", lambda x: x[-1], each((3,), (2, 3), (2, 0))),
    same("getitem slices", lambda x: x[1:, ..., ::2], each((3, 5), (2, 2, 3))),
    Case("getitem backwards", lambda x: x[::-2], lambda x: x[::-2], each((5,), (4, 2))),
    Case("getitem twice", lambda x: x[1:].T[::2][:, None][..., 0], lambda x: x[1:, ::2].T[:, :1], each((3, 4))),
    same("getitem array", lambda x: x[ids(x, [2, 0, 2, -1])], each((3,), (3, 2))),
    same("getitem arrays apart", lambda x: x[ids(x, [1, 1]), :, ids(x, [0, 0])], each((2, 3, 2))),
    same("getitem mask", lambda x: x[x > 0.1], unary()),
    Case("gather", lambda x: x.gather(1, ids(x, PLACES)), lambda x: np.take_along_axis(x, PLACES, 1), each((2, 3))),
    Case("gather few", lambda x: x.gather(-2, ids(x, [[1, 1]])), lambda x: x[1:2, :2], each((2, 3), (3, 2))),
    Case("gather none", lambda x: x.gather(1, ids(x, np.zeros((2, 0), int))), lambda x: x[:, :0], each((2, 3))),
    Case("one_hot", lambda x: ids(x, PLACES).one_hot(3) * x, lambda x: np.eye(3)[PLACES] * x, each((3,), (2, 3, 3))),
    *(
        Case(f"{name} over {axis}", functools.partial(method, axis=axis), functools.partial(right, axis=axis), samples)
        for name, method, right in (
            ("softmax", Tensor.softmax, lambda x, axis: np.exp(x) / totals(x, axis)),
            ("log_softmax", Tensor.log_softmax, lambda x, axis: x - np.log(totals(x, axis))),
        )
        for axis, samples in (
            (-1, each((3,), (2, 3), (2, 2, 3), (0, 2))),
            (0, each((3,), (2, 3), (2, 2, 3))),
            (1, each((2, 3), (2, 3, 2))),
        )
    ),
    constant("argmax", lambda x: x.argmax(), each((), (3,), (2, 3))),
    constant("argmax axis", lambda x: x.argmax(-1), each((3,), (2, 3), (0, 2))),
    constant("argmin", lambda x: x.argmin(), each((), (3,), (2, 3))),
    constant("any", lambda x: (x > 1).any(), unary()),
    constant("all", lambda x: (x < 1).all(), unary()),
    same("prod", lambda x: x.prod(), unary()),
    same("prod of zeros", lambda x: x.prod(0), [(np.array([[0.0, 0, 2], [3, 0, 4], [5, 6, 7]]),)]),
    same("prod axis", lambda x: x.prod(1), each((2, 3), (2, 5, 2), (2, 0), (0, 3))),
    constant("argmax keepdim", lambda x: x.argmax(0, keepdim=True), each((3,), (2, 3)), lambda x: x.argmax(0)[None]),
]


def reductions() -> list[Case]:
    """Reductions over all, one, negative and several axes, with and without keepdim."""
    in_numpy = {
        "sum": np.sum,
        "amax": np.max,
        "amin": np.min,
        "mean": np.mean,
        "prod": np.prod,
        "var": lambda x, **over: np.var(x, ddof=1, **over),
        "std": lambda x, **over: np.std(x, ddof=1, **over),
        "logsumexp": lambda x, **over: np.log(np.sum(np.exp(x), **over)),
    }
    cases = []
    for name, axis, kept in itertools.product(in_numpy, [None, 0, -1, (0, 2), (-2,), (-1, 0, 1)], [False, True]):
        samples = [(draw(2, 3, 2),), (draw(2, 2, 3).T,)]
        if name not in ("var", "std"):  # of one number they are 0/0
            samples += each((2, 1, 2), (1, 1, 1))

        fn = functools.partial(getattr(Tensor, name), axis=axis, keepdim=kept)
        right = functools.partial(in_numpy[name], axis=axis, keepdims=kept)
        cases.append(Case(f"{name} over {axis}{' kept' if kept else ''}", fn, right, samples))
    return cases


CASES += reductions()
CASES += [
    same("sum all", lambda x: x.sum(), unary()),
    Case("max", lambda x: x.max(axis=0), lambda x: x.max(0), each((3,), (2, 3))),
    Case("min", lambda x: x.min(axis=-1, keepdim=True), lambda x: x.min(-1, keepdims=True), each((3,), (2, 3))),
    Case("min of rows", lambda x: x.min(axis=-1), lambda x: x.min(-1), each((3,), (2, 3))),
    Case("amax of no rows", lambda x: x.amax(1), lambda x: x.max(1), each((0, 3))),
    Case("min of no rows", lambda x: x.amin(1, keepdim=True), lambda x: x.min(1, keepdims=True), each((0, 3))),
    Case("logsumexp of no rows", lambda x: x.logsumexp(-1), lambda x: x[:, 0], each((0, 4))),
    same("sum empty axis", lambda x: x.sum(1), each((2, 0, 3))),
    *(
        Case(name, fn, lambda x, power=power: np.mean((x - np.mean(x)) ** 2) ** power, samples)
        for name, fn, power, samples in (
            ("var population", lambda x: x.var(correction=0), 1, each((), (3,), (2, 3))),
            ("std population", lambda x: x.std(-1, correction=0), 0.5, each((3,), (5,))),
        )
    ),
]


def each_of(cases: list[Case]) -> Callable:
    """One test per operation, which tries all of its cases and names the one that fails."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.op, []).append(case)

    def decorate(test: Callable) -> Callable:
        @functools.wraps(test)
        def go_through(case: list[Case], **fixtures: Any) -> None:
            for one in case:
                try:
                    test(one, **fixtures)
                except Exception as error:
                    error.add_note(f"case: {one.label}")
                    raise

        return pytest.mark.parametrize("case", groups.values(), ids=groups)(go_through)

    return decorate
