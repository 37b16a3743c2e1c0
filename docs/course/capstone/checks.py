"""Checks of the capstone, by nano.py: each puts one of your pieces into it, so the order of the pieces is up to you."""

import ast
import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from types import FunctionType

import numpy as np
from compare import same

sys.path.insert(0, str(Path(__file__).parents[3]))
import nano

_SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 8, "attention_scale": 0.5}
_TEXT = "Wer reitet so spät durch Nacht und Wind? Es ist der Vater mit seinem Kind; " * 4


def _mixed(exercise, name):
    """nano.py with this piece from the exercise, and with whatever the exercise has and nano.py does not."""
    spec = importlib.util.spec_from_file_location("nano", nano.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def moved(piece):
        """A function that finds nano.py's Tensor, norm and so on where it names them."""
        if not isinstance(piece, FunctionType) or piece.__module__ != exercise.__name__:
            return piece
        code = FunctionType(piece.__code__, vars(module), piece.__name__, piece.__defaults__, piece.__closure__)
        code.__kwdefaults__ = piece.__kwdefaults__
        return code

    for extra in vars(exercise).keys() - vars(module).keys():
        setattr(module, extra, moved(getattr(exercise, extra)))
    owner, _, piece = name.rpartition(".")
    mine, place = (getattr(holder, owner) if owner else holder for holder in (exercise, module))
    setattr(place, piece, moved(vars(mine)[piece]))
    return module


def _compare(exercise, name, compute):
    """Compare what `compute` returns with this piece, arrays by what they are, with what nano.py alone returns."""
    with np.errstate(all="ignore"):
        found, right = compute(_mixed(exercise, name)), compute(nano)
    for what, expected in right.items():
        assert what in found, f"{what} is missing"
        same(found[what], expected, what, rtol=0, atol=1e-5 * (1 + np.abs(expected).max()))


def _numbers(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def _operation(exercise, name, f, *shapes):
    """An operation of tensors: its value, and the gradient of each operand, broadcast or not."""

    def compute(module):
        operands = [module.Tensor(_numbers(*shape, seed=i)) for i, shape in enumerate(shapes)]
        y = f(*operands)
        assert isinstance(y, module.Tensor), f"yours returns {type(y).__name__}, it must be a Tensor"
        found = {"the value": y.data}
        for x, gradient in y.parents:
            dx = np.asarray(gradient(_numbers(*y.data.shape, seed=9)))
            place = next((i for i, operand in enumerate(operands) if operand is x), None)
            assert place is not None, "a parent is not an operand"
            found[f"the gradient of operand {place + 1}"] = nano.unbroadcast(dx, x.data.shape)
        return found

    _compare(exercise, name, compute)


def _gradients(exercise, name, f, *shape):
    """A function of one tensor: its value, and its gradient by backward."""

    def compute(module):
        x = module.Tensor(_numbers(*shape) - 0.9)
        y = f(module, x)
        (y * _numbers(*y.data.shape, seed=9)).sum().backward()
        return {"the value": y.data, "the gradient": x.grad}

    _compare(exercise, name, compute)


def _model(module):
    """A small GPT with random weights, and ids (2, 8)."""
    model, rng = module.GPT(list("abcdef"), _SHAPE), np.random.default_rng(3)
    for weight in model.weights.values():
        weight.data[...] = rng.standard_normal(weight.data.shape) * 0.5
    return model, rng.integers(0, 7, (2, 8))


class Tensor:
    """The operations, and the walk back."""

    def __mul__(exercise):
        """y = a b: dL/da is dy b, and dL/db is dy a. `other` may be a number or an array: array(other) is its array."""
        _operation(exercise, "Tensor.__mul__", lambda a, b: a * b, (2, 3), (3,))
        _operation(exercise, "Tensor.__mul__", lambda a: a * 2.5, (2, 3))

    def __matmul__(exercise):
        """Chapter 2: dA = dY Bᵀ and dB = Aᵀ dY. With more axes, only the last two are swapped: swapaxes(-1, -2)."""
        _operation(exercise, "Tensor.__matmul__", lambda a, b: a @ b, (2, 3), (3, 4))
        _operation(exercise, "Tensor.__matmul__", lambda a, b: a @ b, (2, 2, 3, 4), (2, 2, 4, 5))

    def __pow__(exercise):
        """The derivative of x^n is n x^(n - 1); n is a number, not a tensor."""
        for n in (2, -0.5, -1.0):
            _operation(exercise, "Tensor.__pow__", lambda a, n=n: a**n, (2, 3))

    def exp(exercise):
        """The derivative of e^x is e^x, which has been computed already."""
        _operation(exercise, "Tensor.exp", lambda a: a.exp(), (2, 3))

    def sum(exercise):
        """Keep the summed axis, with size 1 (keepdims); the gradient is stretched to the operand's shape."""
        for axis in (None, -1, 1):
            _operation(exercise, "Tensor.sum", lambda a, axis=axis: a.sum(axis), (2, 3, 4))

    def __getitem__(exercise):
        """An array of zeros, to which dy is added at the places; np.add.at adds twice where a place occurs twice."""
        _operation(exercise, "Tensor.__getitem__", lambda a: a[np.array([[0, 2], [2, 2]])], (4, 3))
        _operation(exercise, "Tensor.__getitem__", lambda a: a[np.arange(3), np.array([1, 0, 1])], (3, 2))

    def backward(exercise):
        """Collect all tensors that the loss depends on, then visit them newest first (chapter 1)."""

        def compute(module):
            a, b = module.Tensor(_numbers(2, 3)), module.Tensor(_numbers(3, seed=1))
            c = a * b + a
            d = c + c
            (d * d + c).sum().backward()
            return {"the gradient of a": a.grad, "the gradient of b, which was broadcast": b.grad}

        _compare(exercise, "Tensor.backward", compute)


def unbroadcast(exercise):
    """Chapter 2: sum over the axes that NumPy added on the left, then over those of size 1, which stay."""

    def compute(module):
        shapes = ((3,), (1, 3), (2, 1, 3), (2, 4, 3), ())
        return {f"for the shape {shape}": module.unbroadcast(_numbers(2, 4, 3), shape) for shape in shapes}

    _compare(exercise, "unbroadcast", compute)


class GPT:
    """The model."""

    def logits(exercise):
        """Chapter 8: look up the rows, then two branches per block, each added to x, then the norm and the table."""

        def compute(module):
            model, ids = _model(module)
            return {"the result": model.logits(ids).data}

        _compare(exercise, "GPT.logits", compute)

    def attention(exercise):
        """Chapter 6, with `self.linear`, `norm` and `turned`: cut into heads, swap axes 1 and 2, attend, join."""

        def compute(module):
            model, _ = _model(module)
            x = module.Tensor(_numbers(2, 5, 8) - 1)
            y = model.attention(x, "blocks.1.mixer")
            (y * _numbers(2, 5, 8, seed=1)).sum().backward()
            return {"the value": y.data, "the gradient of x": x.grad}

        _compare(exercise, "GPT.attention", compute)

    def loss(exercise):
        """Chapter 9: -log p = log(sum of e^x) - x at the target; subtract the largest logit first, or e^x overflows."""

        def compute(module):
            model, ids = _model(module)
            loss = model.loss(ids[:, :-1], ids[:, 1:])
            loss.backward()
            found = {f"the gradient of {name}": weight.grad for name, weight in model.weights.items()}
            for weight in model.weights.values():
                weight.data *= 30
            return {
                "the loss": loss.data,
                "of large logits, the loss": model.loss(ids[:, :-1], ids[:, 1:]).data,
            } | found

        _compare(exercise, "GPT.loss", compute)


def norm(exercise):
    """Chapter 14: x times (the mean of its squares + 1e-5) to the power of -1/2. A mean is a sum times 1 / C."""
    _gradients(exercise, "norm", lambda module, x: module.norm(x), 2, 3, 4)


def softmax(exercise):
    """e^x over its sum; subtract the largest x first, as an array that needs no gradient: -x.data.max(...)."""
    _gradients(exercise, "softmax", lambda module, x: module.softmax(x), 2, 3, 4)
    _gradients(exercise, "softmax", lambda module, x: module.softmax(x * 1000.0), 2, 4)


def turned(exercise):
    """Chapter 14: x cos + (x turned by a quarter) sin; cos and sin are (T, 1, D), the same in both halves of D."""
    _gradients(exercise, "turned", lambda module, x: module.turned(x), 2, 5, 3, 4)


class AdamW:
    """The optimizer."""

    def step(exercise):
        """Chapter 9: count the step, clip all gradients together to length 1, then m, v, the update; clear .grad."""

        def compute(module):
            weights = [module.Tensor(_numbers(2, 3)), module.Tensor(_numbers(4, seed=1))]
            optimizer = module.AdamW(weights)
            for step, size in enumerate((0.1, 5.0, 0.3)):
                for i, weight in enumerate(weights):
                    weight.grad = (_numbers(*weight.data.shape, seed=10 * step + i) - 0.9) * size
                optimizer.step(0.1)
                assert all(weight.grad is None for weight in weights), "after a step, .grad is not None"
            return {f"after three steps, weight {i + 1}": weight.data for i, weight in enumerate(weights)}

        _compare(exercise, "AdamW.step", compute)


def train(exercise):
    """All pieces together: what remains is a piece that passed its check by luck. Compare it with nano.py."""
    tree = ast.parse(Path(exercise.__file__).read_text(encoding="utf-8"))
    statements = [piece.value for piece in ast.walk(tree) if isinstance(piece, ast.Expr)]
    assert not any(getattr(value, "value", None) is ... for value in statements), "waits for the blanks"

    def weights(module):
        model = module.GPT(sorted(set(_TEXT)), _SHAPE)
        with contextlib.redirect_stderr(io.StringIO()):
            module.train(model, _TEXT, steps=20, rate=0.01, warmup=2)
        return {name: weight.data for name, weight in model.weights.items()}

    for (name, right), mine in zip(weights(nano).items(), weights(exercise).values(), strict=True):
        same(mine, right, f"after 20 steps, {name}", rtol=0, atol=1e-4)
