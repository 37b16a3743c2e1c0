"""Random expressions: programs of a few operations that can be run again on other numbers, and with PyTorch.

A `Graph` is a list of steps, each of which makes a value: leaves, and operations on any earlier values, so that some
are used several times, views are used beside their bases, and shapes broadcast. A graph is evaluated while it is
drawn, because the next step may depend on the numbers: logarithms need positive ones, and where an operation has a kink
(relu at 0, the maximum of equals) they are moved away from it, since there is no derivative to compare with.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.places import here, there_and_back
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.functional.dropout import keep_mask
from tinygrad_lite.random import random_key

GRID = 2.0**-12  # leaves are multiples of it, so float32 represents them and small steps from them exactly
MARGIN = 0.02  # how far numbers stay away from kinks
MAX_SIZE = 48  # elements of a value that is used further
SHAPES = ((), (1,), (3,), (2, 3), (1, 3), (2, 1), (3, 2), (2, 2), (2, 1, 3), (1, 2, 2), (0,), (2, 0, 3), (0, 3))


@dataclass
class Step:
    """A leaf (with an array), or an operation: `ours` takes tensors, `theirs` the module torch and its tensors."""

    name: str
    inputs: tuple[int, ...] = ()
    ours: Callable[..., Tensor] | None = None
    theirs: Callable[..., Any] | None = None
    array: np.ndarray | None = None
    constant: bool = False


class Graph:
    """Steps, and weights: the loss is the weighted sum of all values that no step uses."""

    def __init__(self, key: int) -> None:
        self.key = key  # of all its random numbers
        self.steps: list[Step] = []
        self.weights: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        """The steps in words; hypothesis prints them if a test fails."""
        lines = [
            f"  #{i} = {s.name}({', '.join(f'#{j}' for j in s.inputs)})"
            + (f" {s.array.dtype} {s.array.tolist()}{' constant' * s.constant}" if s.array is not None else "")
            for i, s in enumerate(self.steps)
        ]
        return "\n".join([f"Graph of the key {self.key}, with a loss over {list(self.weights)}:", *lines])

    def names(self) -> Counter[str]:
        """How often each operation occurs."""
        return Counter(step.name for step in self.steps)

    def leaves(self) -> dict[int, Tensor]:
        """Fresh tensors, by the number of their step."""
        return {i: Tensor(s.array, requires_grad=not s.constant) for i, s in enumerate(self.steps) if s.name == "leaf"}

    def run(self, leaves: dict[int, Any], torch: Any = None) -> tuple[list[Any], Any]:
        """All values, and the loss, of tensors of ours or of the module torch."""
        values: list[Any] = []
        with random_key(self.key):
            for i, step in enumerate(self.steps):
                inputs = [values[j] for j in step.inputs]
                if i in leaves:
                    values.append(leaves[i])
                else:
                    values.append(step.theirs(torch, *inputs) if torch else step.ours(*inputs))
        return values, sum((values[i] * like(values[i], w)).sum() for i, w in self.weights.items())


class Builder:
    """Draws a graph step by step."""

    def __init__(self, draw: Callable) -> None:
        self.draw = draw
        self.graph = Graph(draw(st.integers(0, 2**32 - 1)))
        self.rng = np.random.default_rng(self.graph.key)
        self.tensors: list[Tensor] = []  # the results of the steps

    # --- drawing ----------------------------------------------------------------------------------------------

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def yes(self) -> bool:
        return self.draw(st.booleans())

    def value(self, i: int) -> np.ndarray:
        return self.tensors[i].numpy()

    def leaf(self, *shape: int, dtype: Any = np.float64, constant: bool = False) -> int:
        """A new leaf with numbers from -2 to 2."""
        array = (np.round(self.rng.uniform(-2, 2, shape) / GRID) * GRID).astype(dtype)
        self.graph.steps.append(Step("leaf", array=array, constant=constant))
        self.tensors.append(Tensor(array))
        return len(self.tensors) - 1

    def op(self, name: str, inputs: tuple[int, ...], ours: Callable, theirs: Callable | None = None) -> int:
        """A new operation; without `theirs`, the same code serves PyTorch."""
        self.graph.steps.append(Step(name, inputs, ours, theirs or (lambda torch, *values: ours(*values))))
        with no_grad(), random_key(0):
            self.tensors.append(ours(*(self.tensors[i] for i in inputs)))
        assert np.isfinite(self.value(-1)).all(), self.graph
        return len(self.tensors) - 1

    def pick(self, fits: Callable[[np.ndarray], bool] = lambda v: True, shape: tuple[int, ...] = (2, 3)) -> int:
        """A value that fits, with numbers from -4 to 4; a new leaf of the shape if there is none."""
        found = [
            i
            for i, t in enumerate(self.tensors)
            if t.dtype == np.float64 and t.numel() <= MAX_SIZE and t.ndim <= 4 and fits(t.numpy())
        ]
        i = self.choose(*found) if found else self.leaf(*shape)
        largest = np.abs(self.value(i)).max(initial=0)
        if largest > 4:
            factor = float(2 / largest)
            i = self.op("mul", (i,), lambda x: x * factor)
        return i

    def pick_with(self, i: int) -> int:
        """A value that broadcasts against value i."""

        return self.pick(lambda v: broadcast_size(v.shape, self.value(i).shape) <= MAX_SIZE)

    def pair(self) -> tuple[int, int]:
        """Two values that broadcast against each other."""
        i = self.pick()
        return i, self.pick_with(i)

    # --- away from kinks --------------------------------------------------------------------------------------

    def shifted(self, i: int, by: np.ndarray) -> int:
        """Value i plus constants; i itself if they are all 0."""
        if not np.any(by):
            return i
        return self.op("add", (i,), lambda x: x + like(x, by))

    def apart(self, i: int, distance: np.ndarray) -> int:
        """Value i, moved where it has nearly no distance from something."""
        return self.shifted(i, np.where(np.abs(distance) < MARGIN, 3 * MARGIN, 0.0))

    def away(self, i: int, *places: float) -> int:
        """Value i, moved where its numbers are near these places."""
        return self.apart(i, np.min([np.abs(self.value(i) - place) for place in places], axis=0))

    def positive(self, i: int) -> int:
        lowest = self.value(i).min(initial=1)
        return self.shifted(i, np.array(max(0.5 - lowest, 0.0)))

    def with_a_peak(self, i: int, axes: tuple[int, ...] | None, height: float) -> int:
        """Value i, with one number in each group over the axes raised by the height, or lowered if it is negative."""
        v = self.value(i)
        axes = tuple(range(v.ndim)) if axes is None else tuple(a % v.ndim for a in axes)
        kept = [a for a in range(v.ndim) if a not in axes]
        groups = v.transpose(*kept, *axes).reshape(*(v.shape[a] for a in kept), -1)
        peak = (groups * np.sign(height)).argmax(-1)
        by = (np.arange(groups.shape[-1]) == peak[..., None]) * height
        by = by.reshape([v.shape[a] for a in (*kept, *axes)]).transpose(np.argsort([*kept, *axes]))
        return self.shifted(i, by)

    def axes(self, v: np.ndarray) -> tuple[int, ...] | None:
        """Some axes to reduce over, or all."""
        if v.ndim == 0 or self.yes():
            return None
        chosen = self.draw(st.lists(st.integers(0, v.ndim - 1), min_size=1, unique=True))
        return tuple(axis - v.ndim * self.yes() for axis in chosen)


def broadcast_size(*shapes: tuple[int, ...]) -> float:
    """The number of elements of arrays of these shapes together; infinite if they do not fit."""
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return math.inf


def alike(name: str, **settings: Any) -> tuple[Callable, Callable]:
    """A function that has the same name and arguments here and in PyTorch: ours, and theirs."""
    return (
        lambda *values: getattr(F, name)(*values, **settings),
        lambda torch, *values: getattr(torch.nn.functional, name)(*values, **settings),
    )


def like(x: Any, array: np.ndarray) -> Any:
    """An array as a tensor of the library of x."""
    if isinstance(x, Tensor):
        return Tensor(array)
    import torch

    return torch.tensor(array)


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds and y elsewhere, in either library."""
    return condition.where(x, y) if isinstance(x, Tensor) else x.where(condition, y)


def dims(axes: tuple[int, ...] | None, x: Any) -> tuple[int, ...] | None:
    """The axes in the form of the library of x: PyTorch names all."""
    return tuple(range(x.ndim)) if axes is None and not isinstance(x, Tensor) else axes


# --- the operations: each draws its inputs and appends itself ---------------------------------------------------


def unary(name: str, fn: Callable, prepare: Callable[[Builder, int], int] = lambda b, i: i, theirs: Any = None):
    def build(b: Builder) -> None:
        b.op(name, (prepare(b, b.pick()),), fn, theirs)

    return build


def binary(name: str, fn: Callable, prepare: Callable = lambda b, i, j: (i, j), theirs: Any = None):
    def build(b: Builder) -> None:
        i, j = b.pair()
        b.op(name, prepare(b, *((i, j) if b.yes() else (j, i))), fn, theirs)

    return build


def kept_apart(b: Builder, i: int, j: int) -> tuple[int, int]:
    """Two values that are nowhere nearly equal."""
    return b.apart(i, b.value(i) - b.value(j)), j


def build_pow(b: Builder) -> None:
    kind = b.choose("whole", "negative", "broken", "tensor", "base")
    if kind == "whole":
        n = b.number(0, 4)
        b.op("pow", (b.pick(),), lambda x: x**n)
    elif kind == "tensor":
        i, j = b.pair()
        b.op("pow", (b.positive(i), j), lambda x, y: x.pow(y))
    elif kind == "base":
        b.op("pow", (b.pick(),), lambda x: 1.5**x)
    else:
        n = -b.number(1, 3) if kind == "negative" else b.choose(0.5, 1.5, -0.5)
        b.op("pow", (b.positive(b.pick()),), lambda x: x**n)


def build_mod(b: Builder) -> None:
    """Remainder, or quotient without it, away from where the quotient jumps."""
    i = b.pick()
    j = b.positive(b.pick_with(i))
    quotient = b.value(i) / b.value(j)
    i = b.apart(i, (quotient - np.round(quotient)) * b.value(j))
    if b.yes():
        b.op("mod", (i, j), lambda x, y: x % y)
    else:
        b.op("floordiv", (i, j), lambda x, y: x // y * y, lambda torch, x, y: x.detach() // y.detach() * y)


def build_clip(b: Builder) -> None:
    low, high = b.choose((-0.5, 1.0), (None, 0.5), (-1.0, None))
    i = b.away(b.pick(), *(p for p in (low, high) if p is not None))
    b.op("clip", (i,), lambda x: x.clip(low, high))


def build_where(b: Builder) -> None:
    i, j = b.pair()
    mask = b.rng.random(np.broadcast_shapes(b.value(i).shape, b.value(j).shape)) < 0.5
    b.op("where", (i, j), lambda x, y: chosen(like(x, mask), x, y))


def build_compare(b: Builder) -> None:
    """A truth value for each pair selects one of the two, or counts as 0 or 1."""
    how = b.choose("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
    i, j = kept_apart(b, *b.pair())
    if b.yes():
        b.op("compare", (i, j), lambda x, y: chosen(getattr(x, how)(y), x, y * 0.5))
    else:
        b.op(
            "compare",
            (i, j),
            lambda x, y: getattr(x, how)(y).cast("float64") * y,
            lambda torch, x, y: getattr(x, how)(y).to(torch.float64) * y,
        )


def build_logical(b: Builder) -> None:
    """Two truth values select one of two values."""
    how = b.choose("__and__", "__or__", "__xor__")
    i = b.pick()
    i, j = kept_apart(b, i, b.away(b.pick_with(i), 0))
    b.op("logical", (i, j), lambda x, y: chosen(getattr(x < y, how)(y > 0), x, y * 0.5))


def build_cast(b: Builder) -> None:
    """float32 meets float64: cast by name, or because the other operand has the larger type, and axes."""
    i = b.leaf(*b.choose((), (3,), (2, 3), (2, 1)), dtype=np.float32)
    if b.yes():
        b.op("cast", (i,), lambda x: x.cast("float64"), lambda torch, x: x.to(torch.float64))
    else:
        b.op("cast", (i, b.pick_with(i)), lambda x, y: x * y + x)


def build_to(b: Builder) -> None:
    """To another device, where part of the work is done, and back."""
    b.op("to", (b.pick(),), lambda x: there_and_back(x, lambda y: y.sin() * 2), lambda torch, x: torch.sin(x) * 2)


def reduction(name: str, theirs: str, prepare: Callable | None = None):
    def build(b: Builder) -> None:
        i = b.pick(lambda v: v.size > 0) if name != "sum" else b.pick()
        axes, kept = b.axes(b.value(i)), b.yes()
        if prepare:
            i = prepare(b, i, axes)
        b.op(
            name,
            (i,),
            lambda x: getattr(x, name)(axis=axes, keepdim=kept),
            lambda torch, x: getattr(torch, theirs)(x, dims(axes, x), keepdim=kept) if x.ndim else x * 1,
        )

    return build


def build_spread(b: Builder) -> None:
    """Variance or standard deviation over groups of at least two."""
    i = b.pick(lambda v: v.ndim > 0 and min(v.shape) > 1)
    name, axes, kept, correction = b.choose("var", "std"), b.axes(b.value(i)), b.yes(), b.number(0, 1)
    i = b.with_a_peak(i, axes, 1.0)
    b.op(name, (i,), lambda x: getattr(x, name)(dims(axes, x), keepdim=kept, correction=correction))


def build_argmax(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0 and v.size > 0)
    axis = b.number(-b.value(i).ndim, b.value(i).ndim - 1)
    name, height = b.choose(("argmax", 0.5), ("argmin", -0.5))
    b.op(name, (b.with_a_peak(i, (axis,), height),), lambda x: x.gather(axis, getattr(x, name)(axis, keepdim=True)))


def build_matmul(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0)
    inner = b.value(i).shape[-1]

    def fits(v: np.ndarray) -> bool:
        alike = v.ndim > 0 and v.shape[0 if v.ndim == 1 else -2] == inner
        many = broadcast_size(v.shape[:-2], b.value(i).shape[:-2])
        return alike and many < math.inf and v.size * b.value(i).size <= 400

    b.op("matmul", (i, b.pick(fits, shape=b.choose((inner, 2), (inner,), (inner, 1)))), lambda x, y: x @ y)


def build_reshape(b: Builder) -> None:
    i = b.pick()
    size, shape = b.value(i).size, b.value(i).shape
    shapes = [(size,), (1, size), (size, 1), (*shape, 1), (1, *shape), shape[::-1]]
    shapes += [(-1,), (2, -1), (-1, 2)] if size % 2 == 0 and size else []
    shape = b.choose(*shapes)
    b.op("reshape", (i,), lambda x: x.reshape(shape))


def build_permute(b: Builder) -> None:
    i = b.pick()
    axes = tuple(b.draw(st.permutations(range(b.value(i).ndim))))
    b.op("permute", (i,), lambda x: x.permute(axes))


def build_expand(b: Builder) -> None:
    i = b.pick(lambda v: v.size <= MAX_SIZE // 4)
    shape = tuple(b.number(1, 2) if n == 1 else -1 for n in b.value(i).shape)
    shape = (2, *shape) if b.yes() else shape
    b.op("expand", (i,), lambda x: x.expand(shape))


def build_pad(b: Builder) -> None:
    i = b.pick(lambda v: v.size <= MAX_SIZE // 4 and v.ndim <= 2)
    padding = [(b.number(0, 2), b.number(0, 1)) for _ in b.value(i).shape]
    flat = [n for pair in reversed(padding) for n in pair]
    b.op("pad", (i,), lambda x: x.pad(padding, value=0.5), lambda torch, x: torch.nn.functional.pad(x, flat, value=0.5))


def build_cat(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0)
    j = b.pick(lambda v: v.shape == b.value(i).shape)
    axis, kind = b.number(-b.value(i).ndim, b.value(i).ndim - 1), b.choose("cat", "stack", "split")
    if kind == "cat":
        b.op("cat", (i, j), lambda x, y: x.cat(y, x, axis=axis), lambda torch, x, y: torch.cat([x, y, x], axis))
    elif kind == "stack":
        b.op("cat", (i, j), lambda x, y: x.stack(y, axis=axis), lambda torch, x, y: torch.stack([x, y], axis))
    else:
        size = b.value(i).shape[axis]
        sizes = (size // 2, size - size // 2)
        b.op(
            "cat",
            (i,),
            lambda x: x.split(sizes, axis)[1].cat(x.split(sizes, axis)[0], axis=axis),
            lambda torch, x: torch.cat(x.split(sizes, axis)[::-1], axis),
        )


def build_slices(b: Builder) -> None:
    """Numbers, slices in both directions, new axes: views."""
    i = b.pick(lambda v: v.ndim > 0 and v.size > 0)
    index, axes = [], []
    for size in b.value(i).shape:
        kind = b.choose("all", "one", "from", "step", "back")
        one = b.number(-size, size - 1)
        index.append({"all": slice(None), "one": one, "from": slice(one, None), "step": slice(None, None, 2)}.get(kind))
        index[-1] = slice(None, None, -1) if kind == "back" else index[-1]
        axes.append(np.arange(size)[index[-1]])
    if b.yes():
        index = [None, *index]

    def theirs(torch: Any, x: Any) -> Any:
        for axis, places in enumerate(axes):  # PyTorch has no backward slices
            x = x.index_select(axis, torch.tensor(np.array(places, ndmin=1)))
        return x.reshape(shape)

    shape = b.value(i)[tuple(index)].shape
    b.op("getitem", (i,), lambda x: x[tuple(index)], theirs)


def build_picks(b: Builder) -> None:
    """Arrays of positions, with repeats, alone or beside a slice or each other; or of truth values."""
    i = b.pick(lambda v: v.ndim > 0 and v.size > 0)
    shape = b.value(i).shape
    kind = b.choose("rows", "pairs", "behind a slice", "mask") if len(shape) > 1 else b.choose("rows", "mask")
    first, second = (b.rng.integers(-n, n, (2, 2) if b.graph.key % 2 else 3) for n in (shape[0], shape[-1]))
    index: Any = {
        "rows": first,
        "pairs": (first, ..., second),
        "behind a slice": (..., second),
        "mask": b.rng.random(shape[: b.number(1, len(shape))]) < 0.6,
    }[kind]
    parts = index if isinstance(index, tuple) else (index,)
    b.op("getitem", (i,), lambda x: x[tuple(part if part is ... else like(x, part) for part in parts)])


def build_triangle(b: Builder) -> None:
    i, name, diagonal = b.pick(lambda v: v.ndim > 1), b.choose("tril", "triu"), b.number(-1, 1)
    b.op("where", (i,), lambda x: getattr(x, name)(diagonal))


# --- the operations of functional/ ------------------------------------------------------------------------------


def rows(b: Builder) -> int:
    """A value with at least one axis, and at least two numbers along the last."""
    return b.pick(lambda v: v.ndim > 0 and v.shape[-1] > 1)


def build_linear(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0)
    outputs = b.number(1, 3)
    inputs = (i, b.leaf(outputs, b.value(i).shape[-1]), *([b.leaf(outputs)] if b.yes() else []))
    b.op("linear", inputs, *alike("linear"))


def pictures(b: Builder) -> int:
    """A value of the shape (B, C, H, W), of at least one pixel."""
    return b.pick(lambda v: v.ndim == 4 and v.size > 0, (1, 2, b.number(2, 3), b.number(2, 4)))


def build_conv2d(b: Builder) -> None:
    i = pictures(b)
    _, channels, height, width = b.value(i).shape
    groups, stride, padding = b.choose(1, channels), b.number(1, 2), b.number(0, 1)
    outputs, kernel = groups * b.number(1, 2), (b.number(1, min(height, 2)), b.number(1, min(width, 2)))
    weight = b.leaf(outputs, channels // groups, *kernel)
    inputs = (i, weight, *([b.leaf(len(b.value(weight)))] if b.yes() else []))
    b.op("conv2d", inputs, *alike("conv2d", groups=groups, stride=stride, padding=padding))


def pooling(name: str, prepare: Callable[[Builder, int], int] = lambda b, i: i):
    def build(b: Builder) -> None:
        i = prepare(b, pictures(b))
        kernel, stride = tuple(b.number(1, min(n, 3)) for n in b.value(i).shape[2:]), b.number(1, 2)
        padding = b.number(0, min(kernel) // 2)
        b.op(name, (i,), *alike(name, kernel_size=kernel, stride=stride, padding=padding))

    return build


def far_from_each_other(b: Builder, i: int) -> int:
    """Value i, its numbers moved apart so that none is the largest of a window by less than 0.1."""
    v = b.value(i)
    return b.shifted(i, 0.1 * v.argsort(None).argsort().reshape(v.shape))


def norm(name: str, least: int) -> Callable[[Builder], None]:
    """A norm whose gain and shift are as many leaves as named here, or one more."""

    def build(b: Builder) -> None:
        i, eps = rows(b), b.choose(0.1, 0.5)
        width = b.value(i).shape[-1]

        def ours(x: Tensor, *learned: Tensor) -> Tensor:
            return getattr(F, name)(x, eps=eps, **dict(zip(("weight", "bias"), learned, strict=False)))

        def theirs(torch: Any, x: Any, *learned: Any) -> Any:
            return getattr(torch.nn.functional, name)(x, (width,), *learned, eps=eps)

        b.op(name, (i, *(b.leaf(width) for _ in range(least + b.yes()))), ours, theirs)

    return build


def build_rotary(b: Builder) -> None:
    x = b.leaf(2, b.number(1, 3), b.number(1, 2), 4)
    places = b.rng.integers(0, 9, b.value(x).shape[1])

    def theirs(torch: Any, x: Any) -> Any:
        angles = torch.tensor(places)[:, None, None] * torch.tensor([1.0, 0.1], dtype=x.dtype)
        (first, second), cos, sin = x.chunk(2, -1), angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    b.op("rotary", (x,), lambda x: F.rotary(x, Tensor(places), (1.0, 0.1)), theirs)


def build_swiglu(b: Builder) -> None:
    i = b.pick()
    j = b.leaf(*b.value(i).shape)
    b.op("swiglu", (i, j), F.swiglu, lambda torch, gate, up: torch.nn.functional.silu(gate) * up)


def build_gelu(b: Builder) -> None:
    b.op("gelu", (b.pick(),), *alike("gelu", approximate=b.choose("none", "tanh")))


def along_an_axis(name: str) -> Callable[[Builder], None]:
    def build(b: Builder) -> None:
        i = rows(b)
        axis = b.number(-b.value(i).ndim, b.value(i).ndim - 1)
        b.op(name, (i,), lambda x: getattr(x, name)(axis))

    return build


def build_dropout(b: Builder) -> None:
    p = b.choose(0.0, 0.25, 0.5) if here() == "cpu" else 0.0  # a GPU drops other elements than keep_mask

    def theirs(torch: Any, x: Any) -> Any:
        return x * torch.tensor(keep_mask(tuple(x.shape), p) / (1 - p)) if p else x

    b.op("dropout", (b.pick(),), lambda x: F.dropout(x, p), theirs)


def build_embedding(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim == 2 and len(v) > 0)
    ids = b.rng.integers(0, len(b.value(i)), b.choose((), (4,), (2, 3), (0,)))
    b.op("embedding", (i,), lambda w: F.embedding(Tensor(ids), w), lambda torch, w: w[torch.tensor(ids)])


def build_cross_entropy(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0 and v.shape[-1] > 0)
    *shape, vocab_size = b.value(i).shape
    targets = b.rng.integers(0, vocab_size, shape)
    targets[b.rng.random(shape) < 0.2] = -100
    smoothing, how = b.choose(0.0, 0.1, 1.0), b.choose("mean", "sum", "none")

    def theirs(torch: Any, x: Any) -> Any:
        if how == "mean" and not (targets != -100).any():
            return x.sum() * 0  # PyTorch has NaN
        flat = (x.reshape(-1, vocab_size), torch.tensor(targets.reshape(-1)))
        loss = torch.nn.functional.cross_entropy(*flat, label_smoothing=smoothing, reduction=how)
        return loss.reshape(shape) if how == "none" else loss

    def ours(x: Tensor) -> Tensor:
        flat = (x.reshape(-1, vocab_size), Tensor(targets).flatten())
        loss = F.cross_entropy(*flat, ignore_index=-100, label_smoothing=smoothing, reduction=how)
        return loss.reshape(shape) if how == "none" else loss

    b.op("cross_entropy", (i,), ours, theirs)


def build_attention(b: Builder) -> None:
    i = b.pick(lambda v: v.ndim > 0 and v.size > 0)
    shape = (1, 1, b.value(i).size // b.value(i).shape[-1], b.value(i).shape[-1])
    i = b.op("reshape", (i,), lambda x: x.reshape(shape))
    t, s, causal, p = shape[2], b.number(1, 4), b.yes(), b.choose(0.0, 0.25) if here() == "cpu" else 0.0
    mask = b.rng.random((t, s)) < 0.6 if b.yes() else None  # some queries may be fully masked
    allowed = np.tril(np.ones((t, s), bool), s - t) if causal else np.ones((t, s), bool)
    allowed = allowed if mask is None else allowed & mask

    def theirs(torch: Any, q: Any, k: Any, v: Any) -> Any:
        weights = torch.exp(q @ k.transpose(-2, -1) / math.sqrt(shape[3])) * torch.tensor(allowed)
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total)
        return (weights * torch.tensor(keep_mask((1, 1, t, s), p) / (1 - p)) if p else weights) @ v

    inputs = (i, b.leaf(1, 1, s, shape[3]), b.leaf(1, 1, s, shape[3]))
    b.op(
        "scaled_dot_product_attention",
        inputs,
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, mask if mask is None else Tensor(mask), is_causal=causal, dropout_p=p
        ),
        theirs,
    )


OPERATIONS: list[Callable[[Builder], None]] = [
    *(binary(name, getattr(operator, name)) for name in ("add", "sub", "mul")),
    binary("div", operator.truediv, lambda b, i, j: (i, b.positive(j))),
    build_pow,
    build_mod,
    unary("neg", operator.neg),
    binary("maximum", lambda x, y: x.maximum(y), kept_apart),
    binary("minimum", lambda x, y: x.minimum(y), kept_apart),
    build_compare,
    build_logical,
    unary("exp", lambda x: x.exp()),
    *(unary(name, methodcaller(name), Builder.positive) for name in ("log", "sqrt")),
    *(unary(name, methodcaller(name)) for name in ("sigmoid", "tanh", "sin")),
    unary("cos", lambda x: x.cos()),
    unary("erf", lambda x: x.erf()),
    *(unary(name, methodcaller(name), lambda b, i: b.away(i, 0)) for name in ("relu", "abs")),
    unary("sign", lambda x: x.sign() * x, lambda b, i: b.away(i, 0)),
    unary("clone", lambda x: x.clone()),
    unary("silu", lambda x: x.silu(), theirs=lambda torch, x: torch.nn.functional.silu(x)),
    build_clip,
    build_where,
    build_cast,
    build_to,
    *(reduction(name, name) for name in ("sum", "mean", "logsumexp")),
    reduction("max", "amax", lambda b, i, axes: b.with_a_peak(i, axes, 0.5)),
    reduction("min", "amin", lambda b, i, axes: b.with_a_peak(i, axes, -0.5)),
    *(build_spread, build_argmax, build_matmul, build_reshape, build_permute, build_expand, build_pad, build_cat),
    *(build_slices, build_picks, build_triangle, build_linear, norm("layer_norm", 1), build_gelu),
    *(norm("rms_norm", 0), build_rotary, build_swiglu),
    unary("relu_squared", lambda x: F.relu_squared(x), theirs=lambda torch, x: torch.relu(x) ** 2),
    along_an_axis("softmax"),
    along_an_axis("log_softmax"),
    *(build_dropout, build_embedding, build_cross_entropy, build_attention),
    build_conv2d,
    pooling("avg_pool2d"),
    pooling("max_pool2d", far_from_each_other),
]


@st.composite
def graphs(draw: Callable) -> Graph:
    """Two to four leaves, four to twelve operations with their inputs, and a loss over all values not used further."""
    b = Builder(draw)
    b.leaf(*b.choose(*(shape for shape in SHAPES if 0 not in shape)))
    for _ in range(b.number(1, 3)):
        b.leaf(*b.choose(*SHAPES), constant=b.number(0, 5) == 0)
    order = b.rng.permutation(len(OPERATIONS))  # hypothesis prefers small numbers; shuffled, no operation is rare
    for _ in range(b.number(4, 12)):
        OPERATIONS[order[b.number(0, len(order) - 1)]](b)
    used = {j for step in b.graph.steps for j in step.inputs}
    ends = [i for i, t in enumerate(b.tensors) if i not in used and t.dtype == np.float64]
    b.graph.weights = {i: b.rng.uniform(0.5, 1.5, b.value(i).shape) for i in ends}
    return b.graph
