"""For every operation, the calls with which its versions are compared: name -> case -> arguments.

Arrays become tensors: floats of the type that the test asks for, which require gradients; integers and truth values as
they are. All other arguments are passed on unchanged. `test_registry.py` walks through these tables and fails if an
operation has none, and `test_torch.py` compares with PyTorch. The tests of single operations use `both_versions`.
"""

import contextlib
import functools
import math
from typing import Any

import numpy as np
import pytest

import families  # noqa: F401 (with which the operations of the shelf are registered, where that is)
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import REGISTRY, ReferenceAndFused, composed
from tinygrad_lite.random import keyed_rng, random_key

Arguments = dict[str, Any]

_rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape)


def leaf(*shape: int, scale: float = 1.0, dtype: Any = np.float64) -> Tensor:
    """A tensor of such numbers that requires a gradient."""
    return Tensor((normal(*shape) * scale).astype(dtype), requires_grad=True)


def integers(high: int, *shape: int) -> np.ndarray:
    return _rng.integers(0, high, shape)


def tensors(arguments: Arguments, dtype: Any, strided: bool = False, device: str = "cpu") -> Arguments:
    """The arguments with new tensors instead of arrays; `strided` ones have gaps between their elements."""
    made = {}
    for name, value in arguments.items():
        if isinstance(value, (np.ndarray, np.generic)):
            x = Tensor.wrap(np.array(value, dtype if value.dtype.kind == "f" else None)).to(device)
            if strided:
                spread = x.xp.zeros((*x.shape, 2), x.dtype)[..., 0]
                spread[...] = x.data
                x = Tensor.wrap(spread)
            value = x.detach().requires_grad_(value.dtype.kind == "f")
        made[name] = value
    return made


def outcome(version: Any, arguments: Arguments, dtype: Any = np.float64, **how: Any) -> dict[str, np.ndarray]:
    """The value of a call and the gradients of all inputs; of an update in place, the inputs after it.

    The upstream gradient is random, and read-only: a backward that writes into it raises ValueError.
    """
    made = tensors(arguments, dtype, **how)
    with random_key(7):
        y = version(**made)
    inputs = {name: value for name, value in made.items() if isinstance(value, Tensor) and value.requires_grad}
    if y is None:
        return {name: x.numpy() for name, x in inputs.items()}
    if y.requires_grad:
        dy = keyed_rng(1, "upstream").standard_normal(y.shape).astype(dtype)
        dy = np.asarray(dy)
        dy.flags.writeable = False
        y.backward(Tensor.wrap(dy).to(y.device))
    return {"result": y.numpy()} | {name: x.grad.numpy() for name, x in inputs.items()}


@functools.cache
def of_case(name: str, case: str, is_composed: bool = True) -> dict[str, np.ndarray]:
    """The outcome of a case in float64 on the CPU, of either version: what many tests compare with."""
    with composed() if is_composed else contextlib.nullcontext():
        return outcome(REGISTRY[name], CASES[name][case])


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """The same names, shapes and types, and no difference above `tolerance` times the largest finite number."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].shape == array.shape, name
        assert actual[name].dtype == array.dtype, name
        largest = np.max(np.abs(array[np.isfinite(array)]), initial=0.0)
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=tolerance * largest, err_msg=name)


def both_versions(operation: ReferenceAndFused) -> pytest.MarkDecorator:
    """Run a test with the reference version and with the one that a call chooses."""
    return pytest.mark.parametrize("version", [operation.composed, operation], ids=["composed", "fused"])


def _layer_inputs(w: np.ndarray, b: np.ndarray) -> dict[str, Arguments]:
    """Calls of a linear layer, with inputs of several shapes, with and without a bias."""
    width, both = w.shape[1], {"weight": w, "bias": b}
    return {
        "vector": {"x": normal(width)} | both,
        "rows": {"x": normal(5, width)} | both,
        "no bias": {"x": normal(5, width), "weight": w},
        "sequences": {"x": normal(2, 3, width)} | both,
        "no rows": {"x": normal(0, width)} | both,
    }


def _linear() -> dict[str, Arguments]:
    w, b = normal(3, 4), normal(3)
    return _layer_inputs(w, b) | {
        "one output": {"x": normal(2, 3, 4), "weight": w[:1], "bias": b[:1]},
        "wide": {"x": normal(3, 7, 40), "weight": normal(70, 40), "bias": normal(70)},
    }


def _layer_norm() -> dict[str, Arguments]:
    w, b = normal(6), normal(6)
    return {
        "vector": {"x": normal(6), "weight": w, "bias": b},
        "rows": {"x": normal(4, 6), "weight": w, "bias": b},
        "no bias": {"x": normal(4, 6), "weight": w},
        "sequences": {"x": normal(2, 3, 6), "weight": w, "bias": b},
        "far from zero": {"x": normal(4, 6) * 3 + 10, "weight": w, "bias": b},
        "large eps": {"x": normal(4, 6), "weight": w, "bias": b, "eps": 0.5},
        "a bias far above the gain": {"x": normal(4, 6), "weight": w * 0.02, "bias": b + 9},
        "a row of equal numbers": {"x": np.stack([np.full(6, 0.5), normal(6)]), "weight": w, "bias": b},
        "no rows": {"x": normal(0, 6), "weight": w, "bias": b},
        "wide": {"x": normal(3, 7, 128), "weight": normal(128), "bias": normal(128)},
    }


def _gelu() -> dict[str, Arguments]:
    shapes = {"number": (), "vector": (7,), "sequences": (2, 3, 4), "nothing": (0, 3), "several blocks": (3, 27001)}
    cases: dict[str, Arguments] = {}
    for approximate in ("none", "tanh"):
        for name, shape in shapes.items():
            cases[f"{approximate}, {name}"] = {"x": normal(*shape) * 2, "approximate": approximate}
        cases[f"{approximate}, far out"] = {"x": np.linspace(-9, 9, 37), "approximate": approximate}
    return cases


def _linear_gelu() -> dict[str, Arguments]:
    w, b = normal(8, 4), normal(8)
    return _layer_inputs(w, b) | {
        "no outputs": {"x": normal(2, 4), "weight": normal(0, 4), "bias": normal(0)},
        "wide": {"x": normal(3, 7, 40), "weight": normal(160, 40), "bias": normal(160), "approximate": "tanh"},
    }


def _scaled_dot_product_attention() -> dict[str, Arguments]:
    def qkv(batch: int, heads: int, t: int, s: int, width: int = 3) -> Arguments:
        key, value = normal(batch, heads, s, width), normal(batch, heads, s, width)
        return {"query": normal(batch, heads, t, width), "key": key, "value": value}

    some = _rng.random((2, 2, 4, 5)) < 0.6
    some[..., 0] = True
    blind = some.copy()
    blind[0, 1, 2] = False  # this query may attend to no key
    blind[1, :, 0] = False
    padding = np.arange(5) < np.array([3, 5])[:, None, None, None]  # (B, 1, 1, S)
    added = np.where(blind, normal(2, 2, 4, 5), -math.inf)  # it is learned where it is finite
    return {
        "T = S": qkv(2, 2, 4, 4),
        "T < S": qkv(2, 2, 3, 5),
        "scale": qkv(2, 2, 4, 4) | {"is_causal": True, "scale": 1.5},
        "one query": qkv(2, 2, 1, 5) | {"is_causal": True},
        "causal, T = S": qkv(2, 2, 4, 4) | {"is_causal": True},
        "causal, T < S": qkv(1, 2, 3, 5) | {"is_causal": True},
        "causal, T > S": qkv(1, 2, 5, 3) | {"is_causal": True},
        "mask of padding": qkv(2, 2, 4, 5) | {"mask": padding},
        "mask with empty rows": qkv(2, 2, 4, 5) | {"mask": blind},
        "mask, causal": qkv(2, 2, 4, 5) | {"mask": blind, "is_causal": True},
        "added mask with empty rows": qkv(2, 2, 4, 5) | {"mask": added},
        "added mask of two axes": qkv(2, 2, 4, 5) | {"mask": added[0, 1]},  # (T, S)
        "added mask, causal": qkv(2, 2, 4, 5) | {"mask": added, "is_causal": True},
        "added mask, causal, T > S": qkv(1, 2, 5, 3) | {"mask": normal(2, 1, 3), "is_causal": True},
        "added mask, causal, dropout": qkv(2, 2, 4, 5) | {"mask": added, "is_causal": True, "dropout_p": 0.3},
        "dropout, mask, causal": qkv(2, 2, 4, 5) | {"mask": blind, "is_causal": True, "dropout_p": 0.3},
        "large scores": {name: array * 4 for name, array in qkv(1, 2, 4, 4).items()},
        "no sequences": qkv(0, 2, 4, 5),
        # 2 heads x 100 queries x 200 keys: two groups of sequences; 64 rows: three causal blocks
        "groups, T < S, dropout": qkv(4, 2, 100, 200) | {"dropout_p": 0.1},
        "causal blocks, groups": qkv(7, 2, 150, 160) | {"is_causal": True},
        "causal blocks, T > S": qkv(1, 2, 200, 90) | {"is_causal": True},
        "causal blocks, mask, dropout": qkv(2, 2, 130, 140)
        | {"mask": _rng.random((2, 1, 130, 140)) < 0.5, "is_causal": True, "dropout_p": 0.2},
    }


def _softmax() -> dict[str, Arguments]:
    masked = normal(3, 5)
    masked[0, 1:3] = masked[2] = -math.inf  # some elements, and a whole row
    return {
        "vector": {"x": normal(5)},
        "rows": {"x": normal(4, 6)},
        "middle axis": {"x": normal(2, 3, 4), "axis": 1},
        "minus infinity": {"x": masked},
        "no rows": {"x": normal(0, 4)},
        "no classes": {"x": normal(2, 0)},
        "wide": {"x": normal(3, 7, 300)},
    }


def _log_softmax() -> dict[str, Arguments]:
    cases = _softmax()
    del cases["minus infinity"]  # a result of -inf has no gradient to check; see test_softmax.py
    return cases


def _cross_entropy() -> dict[str, Arguments]:
    logits, targets = normal(2, 3, 5), integers(5, 2, 3)
    padded = targets.copy()
    padded[0, 1] = padded[1, 2] = -100
    cases: dict[str, Arguments] = {}
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.1):
            settings = {"reduction": reduction, "label_smoothing": smoothing}
            cases[f"{reduction}, {smoothing}"] = {"logits": logits, "targets": targets, **settings}
            cases[f"{reduction}, {smoothing}, ignored"] = {"logits": logits, "targets": padded, **settings}
        nothing = {"logits": logits, "targets": np.full((2, 3), -100), "reduction": reduction}
        cases[f"{reduction}, all ignored"] = nothing
    many = integers(1500, 200)
    many[::7] = -100
    return cases | {
        "rows": {"logits": normal(4, 5), "targets": integers(5, 4)},
        "ignore 0": {"logits": logits, "targets": targets, "ignore_index": 0, "label_smoothing": 0.1},
        "uint8 targets": {"logits": logits, "targets": targets.astype(np.uint8)},
        "far apart": {"logits": logits * 100, "targets": targets},
        "an impossible token": {"logits": np.array([[0.3, -math.inf, 1.0]]), "targets": np.array([2])},
        "no rows": {"logits": normal(0, 5), "targets": integers(5, 0)},
        "several blocks": {"logits": normal(200, 1500), "targets": many, "label_smoothing": 0.1},
        "distributions": {"logits": normal(4, 5), "targets": np.abs(normal(4, 5)) * 9},  # whose sums are not 1
        "distributions, smoothed": {"logits": normal(4, 5), "targets": np.abs(normal(4, 5)), "label_smoothing": 0.1},
    }


def _embedding() -> dict[str, Arguments]:
    return {
        "one token": {"weight": normal(5, 3), "ids": np.array(2)},
        "repeated": {"weight": normal(5, 3), "ids": np.array([1, 4, 1, 1, 0])},
        "sequences": {"weight": normal(5, 3), "ids": integers(5, 2, 6)},
        "uint16": {"weight": normal(5, 3), "ids": integers(5, 2, 6).astype(np.uint16)},
        "no tokens": {"weight": normal(5, 3), "ids": integers(5, 0, 4)},
        "no rows": {"weight": normal(0, 3), "ids": integers(5, 0)},
        "large table, repeated": {"weight": normal(1500, 3), "ids": integers(7, 20, 8) * 200},
        "one many times": {"weight": normal(1500, 4), "ids": np.where(_rng.random(400) < 0.5, 7, integers(1500, 400))},
    }


def _dropout() -> dict[str, Arguments]:
    return {
        "half": {"x": normal(5, 4), "p": 0.5},
        "few": {"x": normal(2, 3, 5), "p": 0.1},
        "none": {"x": normal(2, 3), "p": 0.0},
        "number": {"x": normal(), "p": 0.5},
        "nothing": {"x": normal(0, 3), "p": 0.5},
    }


def _adamw() -> dict[str, Arguments]:
    def state(*shape: int) -> Arguments:
        return {"w": normal(*shape), "g": normal(*shape), "m": normal(*shape), "v": normal(*shape) ** 2}

    usual = {"step": 10, "lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
    start = {"m": np.zeros(9), "v": np.zeros(9)}
    return {
        "first step": state(9) | start | usual | {"step": 1},
        "later": state(9) | usual,
        "turned": {name: array.T for name, array in state(2, 3).items()} | usual,
        "much later": state(9) | usual | {"step": 100_000},
        "no memory": state(9) | usual | {"beta1": 0.0, "beta2": 0.0},
        "no gradient yet": state(9) | start | usual | {"g": np.zeros(9)},
        "large eps": state(9) | usual | {"eps": 0.1},
        "several blocks": state(150_000) | usual,
    }


def _muon() -> dict[str, Arguments]:
    def stacks(*shape: int) -> Arguments:
        return {"w": normal(*shape), "g": normal(*shape), "m": normal(*shape)}

    usual = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.1, "adjust_lr_fn": "original"}
    return {
        "wide": stacks(2, 3, 5) | usual,
        "tall": stacks(2, 5, 3) | usual,
        "square": stacks(1, 4, 4) | usual | {"adjust_lr_fn": "match_rms_adamw"},
        "more than at once": stacks(3, 200, 300) | usual,
        "no gradient yet": stacks(2, 3, 5) | usual | {"g": np.zeros((2, 3, 5)), "m": np.zeros((2, 3, 5))},
    }


def _rms_norm() -> dict[str, Arguments]:
    w = normal(6)
    return {
        "rows": {"x": normal(4, 6), "weight": w},
        "a gain of zero": {"x": normal(4, 6), "weight": np.append(w[:5], 0)},
        "rows, no weight": {"x": normal(4, 6)},
        "four axes, no weight": {"x": normal(2, 3, 2, 6)},
        "large eps": {"x": normal(2, 3, 6), "weight": w, "eps": 0.5},
        "a row of zeros": {"x": np.stack([np.zeros(6), normal(6)]), "weight": w, "eps": 0.1},
        "no rows": {"x": normal(0, 6), "weight": w},
        "wide": {"x": normal(3, 7, 128), "weight": normal(128)},
    }


def _residual() -> dict[str, Arguments]:
    return {
        "rows": {"x": normal(2, 3, 6), "part": normal(2, 3, 6)},
        "odd": {"x": normal(7), "part": normal(7)},
        "no rows": {"x": normal(0, 6), "part": normal(0, 6)},
    }


def _rotary() -> dict[str, Arguments]:
    return {
        "from the start": {"x": normal(2, 5, 3, 4), "positions": np.arange(5), "frequencies": (1.0, 0.1)},
        "later": {"x": normal(2, 2, 1, 6), "positions": np.array([70, 71]), "frequencies": (1.0, 0.2, 0.05)},
        "by row": {"x": normal(2, 3, 2, 2), "positions": integers(9, 2, 3), "frequencies": (0.7,)},
        "no positions": {"x": normal(2, 0, 2, 2), "positions": np.arange(0), "frequencies": (0.7,)},
    }


def _relu_squared() -> dict[str, Arguments]:
    shapes = {"number": (), "sequences": (2, 3, 4), "nothing": (0, 3), "several blocks": (3, 27001)}
    return {name: {"x": normal(*shape)} for name, shape in shapes.items()}


def _swiglu() -> dict[str, Arguments]:
    shapes = {"number": (), "vector": (7,), "sequences": (2, 3, 4), "nothing": (0, 3), "several blocks": (3, 27001)}
    cases = {name: {"gate": normal(*shape) * 2, "up": normal(*shape)} for name, shape in shapes.items()}
    return cases | {"far out": {"gate": np.linspace(-30, 30, 37), "up": normal(37)}}


def _recurrence(gates: int, parts: int) -> dict[str, Arguments]:
    def call(batch: int, steps: int, width: int, state: bool = False, mask: Any = None) -> Arguments:
        made = {"x": normal(batch, steps, gates * width), "weight": normal(gates * width, width) / width**0.5}
        made |= {"state": normal(batch, parts * width)} if state else {}
        return made | ({"mask": np.array(mask, bool)} if mask is not None else {})

    return {
        "plain": call(2, 5, 3),
        "one step": call(2, 1, 3, True),
        "from a state": call(3, 4, 2, True),
        "padding before": call(2, 4, 3, True, [[0, 0, 1, 1], [1, 1, 1, 1]]),
        "padding behind": call(2, 4, 3, False, [[1, 1, 0, 0], [1, 1, 1, 0]]),
        "no text": call(2, 3, 2, True, [[0, 0, 0], [1, 0, 1]]),
        "no sequences": call(0, 3, 2),
        "long": call(2, 20, 9, True),
        "one number": call(1, 6, 1),
    }


def _long_conv() -> dict[str, Arguments]:
    shapes = {"plain": (2, 5, 3), "one position": (2, 1, 3), "one channel": (1, 16, 1), "long": (2, 33, 4)}
    shapes |= {"no texts": (0, 4, 2), "no positions": (2, 0, 3)}
    return {name: {"x": normal(*shape), "h": normal(*shape[1:])} for name, shape in shapes.items()}


def _exclude() -> dict[str, Arguments]:
    shapes = {"plain": (2, 3, 4), "one vector": (5,), "long": (2, 2, 33, 7), "no vectors": (0, 3)}
    given = {name: {"y": normal(*shape), "v": normal(*shape)} for name, shape in shapes.items()}
    return given | {"along": {"y": np.full((2, 3), 2.0), "v": np.ones((2, 3))}}


def _conv2d() -> dict[str, Arguments]:
    def call(x: tuple, weight: tuple, bias: bool = True, **settings: Any) -> Arguments:
        made = {"x": normal(*x), "weight": normal(*weight)}
        return made | ({"bias": normal(weight[0])} if bias else {}) | settings

    return {
        "plain": call((2, 3, 5, 4), (4, 3, 3, 2)),
        "padding, no bias": call((2, 2, 4, 4), (3, 2, 3, 3), False, padding=1),
        "stride": call((1, 2, 7, 6), (2, 2, 3, 3), stride=2, padding=1),
        "stride above kernel": call((2, 1, 8, 7), (2, 1, 2, 2), stride=3),
        "pairs": call((1, 2, 6, 5), (2, 2, 2, 3), stride=(2, 1), dilation=(3, 2), padding=(2, 3)),
        "as wide as before": call((2, 2, 5, 4), (3, 2, 2, 3), padding=(1, 1)),
        "as wide, wider than pictures": call((2, 1, 2, 2), (1, 1, 3, 7), padding=(2, 3)),
        "as wide, dilated": call((1, 2, 6, 5), (2, 2, 3, 3), False, dilation=(1, 2), padding=(0, 2)),
        "groups": call((2, 4, 4, 3), (6, 2, 2, 2), groups=2, stride=2, padding=1),
        "depthwise": call((2, 3, 4, 4), (3, 1, 3, 3), groups=3, padding=1),
        "one pixel": call((2, 3, 3, 2), (4, 3, 1, 1)),
        "no pictures": call((0, 2, 4, 4), (3, 2, 3, 3), padding=1),
        "no filters": call((2, 2, 4, 4), (0, 2, 3, 3)),
        "several blocks": call((5, 16, 26, 27), (4, 16, 3, 3), padding=1),
    }


def _pool() -> dict[str, Arguments]:
    return {
        "halves": {"x": normal(2, 3, 4, 6)},
        "odd size": {"x": normal(2, 1, 5, 7), "kernel_size": 3},
        "overlapping": {"x": normal(1, 2, 7, 6), "kernel_size": 3, "stride": 2, "padding": 1},
        "pairs": {"x": normal(2, 2, 5, 6), "kernel_size": (2, 4), "stride": (1, 2), "padding": (0, 2)},
        "whole picture": {"x": normal(2, 2, 1, 257), "kernel_size": (1, 257)},
        "no pictures": {"x": normal(0, 2, 4, 4)},
    }


NAMED = [_linear, _layer_norm, _gelu, _linear_gelu, _scaled_dot_product_attention, _softmax, _log_softmax]
NAMED += [_cross_entropy, _embedding, _dropout, _adamw, _muon, _rms_norm, _residual, _rotary, _relu_squared, _swiglu]
NAMED += [_long_conv, _exclude, _conv2d]
OF_NAMED = {cases.__name__[1:]: cases() for cases in NAMED}
CASES: dict[str, dict[str, Arguments]] = {
    **OF_NAMED,
    "rnn": _recurrence(1, 1),
    "lstm": _recurrence(4, 2),
    "avg_pool2d": _pool(),
    "max_pool2d": _pool(),
}
CASES = {name: cases for name, cases in CASES.items() if name in REGISTRY}
