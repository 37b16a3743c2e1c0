"""Clipping, and stopping at a broken step, without reading the numbers; the updates that do so, and those of Muon."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.cuda.muon import muon_cuda
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.optim.muon import muon_composed
from tinygrad_lite.precision import precision

rng = np.random.default_rng(21)


def judged(device, gradients, losses=(1.5,), max_norm=0.0, step=3, guard=None):
    place = get_device(device)
    gradients = place.from_host(np.asarray(gradients, "float32"))
    guard = guard or Guard(gradients)
    parts = [Tensor(np.array(loss, "float32"), device=device) for loss in losses]
    guard.judge(parts, gradients, max_norm, step)
    return guard


@pytest.mark.parametrize("count", [3, 1000, 300_001])
def test_loss_and_norm_can_be_read(cuda, count):
    gradients = rng.standard_normal(count).astype("float32")
    loss, norm, broken = judged(cuda, gradients, losses=(1.5, 0.25)).read()
    assert loss == 1.75
    assert norm == pytest.approx(np.linalg.norm(gradients.astype("float64")), rel=1e-6)
    assert broken is None


@pytest.mark.parametrize(("max_norm", "scale"), [(0.0, 1.0), (10.0, 1.0), (2.5, 0.5)])
def test_the_scale_reduces_the_norm_to_its_maximum(cuda, max_norm, scale):
    guard = judged(cuda, [3.0, 4.0], max_norm=max_norm)
    assert guard.numbers.tolist()[0] == pytest.approx(scale)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_broken_step_is_kept(cuda, bad):
    guard = judged(cuda, [1.0, bad, 1.0], step=7)
    loss, norm, broken = guard.read()
    assert (loss, broken) == (1.5, 7)
    assert not math.isfinite(norm)
    judged(cuda, [3.0, 4.0], losses=(9.0,), step=8, guard=guard)
    assert (guard.read()[0], guard.read()[2]) == (1.5, 7)
    assert judged(cuda, [3.0, 4.0], losses=(bad,), step=0).read()[2] == 0


SETTINGS = {"adamw": (4, 1e-2, 0.9, 0.99, 1e-8, 0.1), "muon": (0.02, 0.95, 0.1, "original")}
SHAPES = {"adamw": [(7,), (1024,)], "muon": [(2, 3, 5), (3, 16, 8), (1, 1, 7), (1, 200, 300)]}


@pytest.mark.parametrize("numbers", [[0.25, -1, 0, 0], [1, 5, 0, 0]], ids=["scaled", "broken"])
@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SHAPES.items() for shape in shapes])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-13)])
def test_a_guard_scales_gradients_and_stops_updates(cuda, name, shape, numbers, dtype, tolerance):
    """After a broken step nothing changes, whatever the gradients are."""
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in range(4 if name == "adamw" else 3)]
    arrays[-1], is_broken = np.abs(arrays[-1]), numbers[1] >= 0
    if is_broken:
        arrays[1].flat[0] = np.nan
    expected, found = [Tensor(array) for array in arrays], [Tensor(array, device=cuda) for array in arrays]
    if not is_broken:
        REGISTRY[name].composed(expected[0], expected[1] * numbers[0], *expected[2:], *SETTINGS[name])
    REGISTRY[name].version_for("cuda")(*found, *SETTINGS[name], Tensor(np.array(numbers, "float64"), device=cuda))
    for one, other, before in zip(expected, found, arrays, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=0, atol=tolerance)
        assert not is_broken or other.numpy().tobytes() == before.tobytes()


# --- Muon: NaN, the precision of the products, layouts --------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 24, 40), (2, 40, 24)])
@pytest.mark.parametrize(("mode", "rounding"), [("tf32", 2**-11), ("bfloat16", 2**-9)])
def test_coarser_products_have_their_errors(cuda, mode, rounding, shape):
    """Singular values of the gradients are between 1/2 and 1: small ones would magnify the rounding up to 77 times."""
    left, _, right = np.linalg.svd(np.random.default_rng(5).standard_normal(shape), full_matrices=False)
    g = ((left * np.linspace(0.5, 1, left.shape[-1])) @ right).astype("float32")
    w = m = np.zeros(shape, "float32")
    given, exact = ([Tensor(array, device=device) for array in (w, g, m)] for device in (cuda, "cpu"))
    with precision(mode):
        muon_cuda(*given, 1.0, 0.0, 0.0, "original")
    muon_composed(*exact, 1.0, 0.0, 0.0, "original")
    error = np.linalg.norm(given[0].numpy() - exact[0].numpy()) / np.linalg.norm(exact[0].numpy())
    assert rounding / 2 < error < 16 * rounding  # of 9 products; over 40 such matrices, at most 14
