"""Numbers of very different sizes in what mixes positions: nothing later changes what is earlier."""

from contextlib import nullcontext

import numpy as np
import pytest

from extra.mixers.exclusive import ExclusiveAttention
from extra.mixers.long_conv import BLOCK, long_conv
from extra.mixers.mixers import CHUNK, Hyena, Mamba2
from extra.mixers.recurrent import LSTM, RNN, RecurrentMixer
from extra.mixers.relative import ALiBi, Shaw
from extra.mixers.window import WindowAttention
from tests.lively import lively
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.transformer import MultiHeadAttention, rotary_frequencies

rng = np.random.default_rng(8)
C, H = 8, 2
MIXERS = {
    "attention": lambda: MultiHeadAttention(C, H),
    "rotary": lambda: MultiHeadAttention(C, H, frequencies=rotary_frequencies(C // H)),
    "alibi": lambda: MultiHeadAttention(C, H, relative=ALiBi(H)),
    "shaw": lambda: MultiHeadAttention(C, H, relative=Shaw(C // H, 0.5)),
    "window, rotary": lambda: WindowAttention(C, H, window=7, frequencies=rotary_frequencies(C // H)),
    "exclusive, groups": lambda: ExclusiveAttention(C, H, n_kv_head=1),
    "hyena": lambda: Hyena(C, 256),
    "mamba2": lambda: Mamba2(C, H),
    "rnn": lambda: RecurrentMixer(RNN(C, C), C),
    "lstm": lambda: RecurrentMixer(LSTM(C, C), C),
}


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("reference", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["fused", "composed"])
@pytest.mark.parametrize("make", MIXERS.values(), ids=MIXERS)
def test_a_mixer_computes_nothing_from_what_follows(make, reference):
    """Whatever stands at the last position: all earlier results keep their bits, with a cache, too.

    So do the gradients of what is earlier, if the later results have none, and what stands there is finite.
    """
    with composed() if reference else nullcontext():
        mixers = {dtype: lively(make, dtype).eval() for dtype in ("float32", "float64")}
        for steps in (2, CHUNK + 1, 2 * BLOCK + 7):
            x, dy = (rng.standard_normal((2, steps, C)) for _ in range(2))
            dy[:, -1] = 0
            for dtype, last in (("float32", 1e12), ("float32", np.inf), ("float32", np.nan), ("float64", 1e12)):
                found = []
                for number in (0.5, last):
                    x[:, -1] = number
                    given = Tensor(x.astype(dtype), requires_grad=True)
                    y = mixers[dtype](given, is_causal=True)
                    y.backward(Tensor(dy.astype(dtype)))
                    found.append((y.numpy()[:, :-1], given.grad.numpy()[:, :-1]))
                np.testing.assert_array_equal(found[1][0], found[0][0], err_msg=f"{last} after {steps - 1}")
                if dtype == "float64":
                    np.testing.assert_array_equal(found[1][1], found[0][1], err_msg=f"gradient, {last}")


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_long_convolution_mixes_no_sizes():
    """A number changes what follows it alone; a gradient, what precedes it. The rest is right for its own size."""
    for steps in (1, BLOCK + 1, 3 * BLOCK + 5):
        shapes = ((2, steps, 3), (steps, 3), (2, steps, 3))
        x, h, dy = (rng.standard_normal(shape).astype("float32") for shape in shapes)

        def run(x, dy, version=long_conv, dtype="float32", h=h):
            given = [Tensor(array.astype(dtype), requires_grad=True) for array in (x, h)]
            y = version(*given)
            y.backward(Tensor(dy.astype(dtype)))
            return [y.numpy(), *(tensor.grad.numpy() for tensor in given)]

        exact = run(x, dy, long_conv.composed, "float64")
        plain = run(x, dy)
        for actual, right in zip(plain, exact, strict=True):
            np.testing.assert_allclose(actual, right, atol=3e-6 * np.abs(right).max())
        for place in {0, steps // 2, steps - 1}:
            x_large, dy_large = x.copy(), dy.copy()
            x_large[:, place] = dy_large[:, place] = 1e12
            np.testing.assert_array_equal(run(x_large, dy)[0][:, :place], plain[0][:, :place])
            np.testing.assert_array_equal(run(x, dy_large)[1][:, place + 1 :], plain[1][:, place + 1 :])
