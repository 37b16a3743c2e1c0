"""Checks of chapter 2."""

import numpy as np
from tiny_tensor import TinyTensor


def _compare(f, **arrays):
    """Compare the gradients of L = (f(*arrays) * random weights).sum() with measured slopes, element by element."""
    weights = np.random.default_rng(1).uniform(0.5, 1.5, f(*map(TinyTensor, arrays.values())).value.shape)

    def loss(values):
        return float((f(*map(TinyTensor, values)).value * weights).sum())

    tensors = [TinyTensor(array) for array in arrays.values()]
    y = f(*tensors)
    y.grad += weights
    gradients = y.derivative(y.grad)
    assert isinstance(gradients, tuple), "the derivative returns a tuple, with one gradient for each parent"
    assert len(gradients) == len(arrays), f"{len(arrays)} gradients are needed, {len(gradients)} were returned"
    for place, (name, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        shape = tensors[place].value.shape
        assert np.shape(gradient) == shape, (
            f"your gradient of {name} has the shape {np.shape(gradient)}, it must be {shape}"
        )
        slopes = np.zeros(shape)
        for where in np.ndindex(shape):
            ends = []
            for change in (1e-6, -1e-6):
                values = [array.copy() for array in arrays.values()]
                values[place][where] += change
                ends.append(loss(values))
            slopes[where] = (ends[0] - ends[1]) / 2e-6
        wrong = ~np.isclose(gradient, slopes, rtol=1e-5, atol=1e-7)
        if wrong.any():
            where = tuple(map(int, np.argwhere(wrong)[0]))
            raise AssertionError(
                f"with shapes {', '.join(f'{key} {value.shape}' for key, value in arrays.items())}: the gradient of "
                f"{name} at {list(where)}: yours is {gradient[where]:.4g}, it must be {slopes[where]:.4g}, the slope"
            )


def STRETCHED(exercise):
    """A gradient has its value's shape. In which products was each number used, and by what was it multiplied?"""
    x, w = TinyTensor([[1], [2]]), TinyTensor([10, 20, 30])
    (x * w).sum().backward()
    for name, tensor in (("x", x), ("w", w)):
        answer = np.asarray(exercise.STRETCHED[name])
        assert answer.shape == tensor.value.shape, (
            f"{name} has shape {tensor.value.shape}, your gradient has {answer.shape}"
        )
        assert (answer == tensor.grad).all(), f"{answer.tolist()} is not the gradient of {name}"


def linear(exercise):
    """Write y[n,o] with indices and ask where x[n,i], W[o,i] and b[o] occur. The shapes tell you the rest."""
    rng = np.random.default_rng(0)
    for rows, c_in, c_out in ((4, 3, 2), (3, 3, 3), (1, 2, 3)):  # with squares the shapes give nothing away
        _compare(
            exercise.linear,
            x=rng.standard_normal((rows, c_in)),
            w=rng.standard_normal((c_out, c_in)),
            b=rng.standard_normal(c_out),
        )


def mean(exercise):
    """Each summand gets what share of the gradient? np.expand_dims(dy, axis) restores the axis, with size 1."""
    rng = np.random.default_rng(0)
    for shape, axis in (((2, 5, 3), 1), ((3, 3), 0), ((3, 3), 1), ((2, 3), -1)):
        _compare(lambda x, axis=axis: exercise.mean(x, axis), x=rng.standard_normal(shape))


def pick(exercise):
    """A row that was picked twice gets both gradients; dx[places] += dy adds only one of them, np.add.at both."""
    x = np.random.default_rng(0).standard_normal((4, 3))
    for places in ([2, 0], [1, 1, 3, 1]):
        _compare(lambda x, places=places: exercise.pick(x, places), x=x)
