"""Small examples that were worked out by hand, or by the formula as it is written, for both versions."""

import math

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import REGISTRY

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]

inf, nan = math.inf, math.nan
LN2, LN3, LN4 = (math.log(n) for n in (2, 3, 4))
RANGE = np.linspace(-5, 5, 41)
GELU = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in RANGE]
GELU_OF_GPT_2 = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) for v in RANGE]
PAIR = {"logits": [[0, LN3], [0, LN3]], "targets": [0, 1]}  # probabilities 1/4 and 3/4
QUARTER, ONE_PAIR = (math.pi / 2, 0.0), [[[[nan, 2, nan, 4], [-3, 2, 1, 4]]]]
NO_ROW = [[nan] * 2, [-LN2] * 2]
IMAGE = {"x": [[[[1, 2, 0], [0, 1, 1], [3, 0, 0]]]], "weight": [[[[1, 2], [3, 4]]]], "bias": [0.5]}
GRADIENTS = {"x": [[[[1, 2, 0], [3, 4 + 10, 20], [0, 30, 40]]]], "weight": [[[[1 + 10, 2 + 10], [0, 1]]]]}
NONE = [[], []]  # two rows of no numbers
PICTURE = [[[[1, 2, 3, 9], [6, 3, 8, 0], [7, 7, 7, 7]]]]  # the last row fills no window of 2 x 2
FIRST = {"x": [[[[1, 2, 0], [4, 8, 0], [0, 0, 0]]]]}
STAIRS = [[[[0, 0, 1], [0, 1, 1], [0, 0, 0]]]]
ROW = [[[[1, 2]]]]
BROKEN = [[[[1, nan, inf, 2], [inf, nan, 0, inf]]]]
SPOILED = [[[[inf, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, nan]]]]
FULL, PADDED, OVERLAP = [[[[1, 1], [1, 1]]]], {"kernel_size": 2, "padding": 1}, {"kernel_size": 2, "stride": 1}
# By operation: arguments, the result and, where it is to be differentiated, dL/dy and the gradients of arguments.
EXAMPLES = {
    "linear": [
        ({"x": [[1, 2], [3, 4]], "weight": [[1, 0], [1, -1]], "bias": [0.5, 10]}, [[1.5, 9], [3.5, 9]]),
        ({"x": [[1, 2]], "weight": [[3, 4]]}, [[11]], [[1]], {"weight": [[1, 2]]}),
        ({"x": NONE, "weight": NONE, "bias": [5, 6]}, [[5, 6]] * 2, [[1, 2]] * 2, {"weight": NONE, "bias": [2, 4]}),
    ],
    "layer_norm": [  # mean 2, biased variance 1: each number is one standard deviation from the mean
        ({"x": [[1, 3, 1, 3]], "weight": [1, 1, 2, 2], "bias": [0, 0, 5, 5], "eps": 0.0}, [[-1, 1, 3, 7]]),
        ({"x": NONE, "weight": [], "bias": []}, NONE, NONE, {"x": NONE, "weight": [], "bias": []}),
        ({"x": [[3], [4]], "weight": [5]}, [[0]] * 2, [[1]] * 2, {"x": [[0]] * 2, "weight": [0]}),
    ],
    # The mean of 3^2, 4^2, 0 and 0 is 6.25, whose root is 2.5.
    "rms_norm": [
        ({"x": [3, 4, 0, 0], "weight": [5, 5, 1, 1], "eps": 0.0}, [6, 8, 0, 0]),
        ({"x": NONE}, NONE, NONE, {"x": NONE}),
        ({"x": [[3], [-4]], "eps": 0.0}, [[1], [-1]], [[1]] * 2, {"x": [[0]] * 2}),
    ],
    "embedding": [
        *(({"ids": [1, 1], "weight": [[]] * rows}, NONE, NONE, {"weight": [[]] * rows}) for rows in (4, 2000)),
        ({"ids": [2, 0, 2], "weight": [[1], [2], [3]]}, [[3], [1], [3]], [[1], [2], [4]], {"weight": [[2], [0], [5]]}),
    ],
    # A quarter turn takes (x_0, x_2) = (1, 3) to (-3, 1); the other pair is not rotated.
    "rotary": [
        ({"x": [[[[1, 2, 3, 4]]]], "positions": [1], "frequencies": QUARTER}, [[[[-3, 2, 1, 4]]]]),
        ({"x": [[[[nan, 2, 3, 4], [1, 2, 3, 4]]]], "positions": [1], "frequencies": QUARTER}, ONE_PAIR),
    ],
    "gelu": [
        ({"x": RANGE}, GELU),
        ({"x": RANGE, "approximate": "tanh"}, GELU_OF_GPT_2),
        ({"x": [nan, inf, 0]}, [nan, inf, 0], [1, 1, 1], {"x": [nan, nan, 0.5]}),
        ({"x": [nan, inf, 0], "approximate": "tanh"}, [nan, inf, 0], [1, 1, 1], {"x": [nan, nan, 0.5]}),
    ],
    "relu_squared": [
        ({"x": [-2, 0, 0.5, 3]}, [0, 0, 0.25, 9], [1, 1, 1, 1], {"x": [0, 0, 1, 6]}),
        ({"x": [nan, 1, -1, inf, -inf]}, [nan, 1, 0, inf, 0], [1] * 5, {"x": [nan, 2, 0, inf, 0]}),
    ],
    "swiglu": [
        # Far below 0 a gate is closed; at 0 too, but with slope 1/2; far above, the result is gate times up.
        ({"gate": [-1000, 0, 1000], "up": [3, 3, 3]}, [0, 0, 3000], [1, 1, 1], {"gate": [0, 1.5, 3]}),
        ({"gate": [nan, 0], "up": [1, nan]}, [nan, nan], [1, 1], {"gate": [nan, nan], "up": [nan, 0]}),
    ],
    "softmax": [({"x": [1e4, -1e4, 1e4]}, [0.5, 0, 0.5], [1, 2, 3], {"x": [-0.5, 0, 0.5]})],
    "log_softmax": [
        ({"x": [1e4, -1e4, 1e4]}, [-LN2, -2e4 - LN2, -LN2]),
        ({"x": [0, -inf, 0]}, [-LN2, -inf, -LN2], [1, 0, 0], {"x": [0.5, 0, -0.5]}),
        ({"x": [[-inf] * 2, [0, 0]]}, NO_ROW, [[0, 0], [1, 0]], {"x": [[nan] * 2, [0.5, -0.5]]}),
    ],
    "cross_entropy": [  # ln 4 nats for the first, ln 4/3 for the second
        (PAIR, (2 * LN4 - LN3) / 2),
        (PAIR | {"reduction": "sum"}, 2 * LN4 - LN3),
        (PAIR | {"reduction": "none"}, [LN4, LN4 - LN3]),
    ],
    # Each result is 1 a + 2 b + 3 c + 4 d + bias, of a window with a b above c d.
    "conv2d": [
        (IMAGE, [[[[9.5, 9.5], [11.5, 3.5]]]], [[[[1, 0], [0, 10]]]], GRADIENTS),
    ],
    "avg_pool2d": [
        ({"x": PICTURE}, [[[[3, 5]]]], [[[[4, 8]]]], {"x": [[[[1, 1, 2, 2], [1, 1, 2, 2], [0] * 4]]]}),
        ({"x": FULL} | PADDED, [[[[0.25, 0.25], [0.25, 0.25]]]]),  # the zeros count
        ({"x": SPOILED}, [[[[inf, 1], [1, nan]]]]),
    ],
    "max_pool2d": [
        ({"x": PICTURE}, [[[[6, 9]]]], [[[[4, 8]]]], {"x": [[[[0, 0, 0, 8], [4, 0, 0, 0], [0] * 4]]]}),
        # Of equal pixels the first in reading order gets the gradient.
        ({"x": STAIRS} | OVERLAP, FULL, [[[[1, 2], [4, 8]]]], {"x": [[[[0, 0, 2], [0, 13, 0], [0, 0, 0]]]]}),
        # All four windows reach into the padding, and one has four equal pixels.
        *(({"x": [[[[v] * 3] * 3]]} | PADDED, [[[[v] * 2] * 2]], [[[[1, 2], [4, 8]]]], FIRST) for v in (-5, -inf)),
        ({"x": [[[[-inf] * 2]]], "kernel_size": (1, 2), "padding": (0, 1)}, [[[[-inf] * 2]]], ROW, {"x": ROW}),
        # NaN is larger than any number, and infinity stays in its window. The padding never wins.
        ({"x": BROKEN}, [[[[nan, inf]]]], [[[[1, inf]]]], {"x": [[[[0, 1, inf, 0], [0] * 4]]]}),
        *(({"x": low} | PADDED, low, FULL, {"x": FULL}) for low in ([[[[v, v], [v, v]]]] for v in (-5, -inf))),
    ],
}

ROUNDED = {"rms_norm", "rotary", "gelu", "softmax", "log_softmax", "cross_entropy"}  # the other results are exact


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "example"), [(name, row) for name, rows in EXAMPLES.items() for row in rows])
def test_results_and_gradients_are_those_of_the_example(name, example, dtype):
    arguments, result, dy, gradients = (*example, None, {})[:4]
    rounding = 0 if name not in ROUNDED else 1e-14 if dtype == "float64" else 1e-6
    for version in (REGISTRY[name].composed, REGISTRY[name]):
        made = {}
        for key, value in arguments.items():
            if isinstance(value, list | np.ndarray):
                kind = int if key in ("ids", "targets", "positions") else dtype
                value = Tensor(value, dtype=kind, device=here(), requires_grad=key in gradients)
            made[key] = value
        y = version(**made)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.numpy(), result, rtol=rounding, atol=rounding)
        if gradients:
            y.backward(Tensor(dy, dtype=dtype, device=here()))
        for key, x in made.items():
            if isinstance(x, Tensor) and key not in gradients:
                assert x.grad is None
            elif isinstance(x, Tensor):
                np.testing.assert_allclose(x.grad.numpy(), gradients[key], rtol=rounding, atol=rounding)


@pytest.mark.cpu_only("on a GPU, nobody waits to see whether a value is infinite")
def test_an_infinite_value_reaches_only_the_queries_that_attend_to_it():
    """Of three values, each query gets the mean of those that its mask lets through, or that are not in its future."""
    attention = REGISTRY["scaled_dot_product_attention"]
    value, key = np.zeros((2, 2, 2, 3, 3))
    value[1, 1] = [[1, 2, 6], [inf, 4, 6], [5, nan, 6]]
    query, value, mask = Tensor(key), Tensor(value), Tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=bool)
    key[..., 2, :] = inf
    for version in (attention.composed, attention):
        y = version(query, query, value, mask=mask).numpy()
        np.testing.assert_array_equal(y[1, 1], [[inf, 3, 6], [1, 2, 6], [5, nan, 6]])
        assert not y[[0, 0, 1], [0, 1, 0]].any()
        y = version(query, Tensor(key), value, is_causal=True).numpy()
        np.testing.assert_array_equal(y[1, 1], [[1, 2, 6], [inf, 3, 6], [nan] * 3])
