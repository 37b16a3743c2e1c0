"""Clipping, and stopping at a broken step, without reading the numbers; and the update that does so."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite.cuda.adamw import adamw_cuda
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.device import get_device
from tinygrad_lite.nn import Parameter
from tinygrad_lite.optim import AdamW, adamw_composed

rng = np.random.default_rng(21)


def judged(device, gradients, losses=(1.5,), max_norm=0.0, step=3, guard=None):
    place = get_device(device)
    gradients = place.from_host(np.asarray(gradients, "float32"))
    guard = guard or Guard(gradients)
    parts = [Tensor(np.array(loss, "float32"), device=device) for loss in losses]
    guard.judge(parts, gradients, max_norm, step)
    return guard


@pytest.mark.parametrize("count", [1, 3, 4, 1000, 300_001])
def test_loss_and_norm_can_be_read(cuda, count):
    gradients = rng.standard_normal(count).astype("float32")
    loss, norm, broken = judged(cuda, gradients, losses=(1.5, 0.25)).read()
    assert loss == 1.75
    assert norm == pytest.approx(np.linalg.norm(gradients.astype("float64")), rel=1e-6)
    assert broken is None


@pytest.mark.parametrize(("max_norm", "scale"), [(0.0, 1.0), (10.0, 1.0), (5.0, 1.0), (2.5, 0.5)])
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
    assert guard.read()[0] == 1.5
    assert guard.read()[2] == 7
    assert judged(cuda, [3.0, 4.0], losses=(bad,), step=0).read()[2] == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("numbers", [None, [0.25, -1, 0, 0], [1, 5, 0, 0]])
@pytest.mark.parametrize("count", [1, 7, 1024])
def test_an_update_equals_that_of_the_reference_version(cuda, dtype, numbers, count):
    """With a guard, the gradient is scaled, and after a broken step there is no update."""
    arrays = [rng.standard_normal(count).astype(dtype) for _ in range(4)]
    arrays[3] = np.abs(arrays[3])
    settings = (4, 1e-2, 0.9, 0.99, 1e-8, 0.1)
    expected = [Tensor(array) for array in arrays]
    if numbers is None or numbers[1] < 0:
        scaled = expected[1] * (numbers[0] if numbers else 1.0)
        adamw_composed(expected[0], scaled, *expected[2:], *settings)
    tensors = [Tensor(array, device=cuda) for array in arrays]
    guard = None if numbers is None else Tensor(np.array(numbers, "float64"), device=cuda)
    adamw_cuda(*tensors, *settings, guard)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for one, other, before in zip(expected, tensors, arrays, strict=True):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=tolerance, atol=tolerance / 10)
        if numbers and numbers[1] >= 0:
            assert (other.numpy() == before).all()


def test_an_optimizer_with_a_guard_clips_as_one_without(cuda):
    found = []
    for guarded in (False, True):
        weight = Parameter(np.linspace(-1, 1, 10, dtype="float32"))
        weight.data = get_device(cuda).from_host(weight.data)
        optimizer = AdamW([("weight", weight)], 0.1)
        guard = Guard(optimizer.values.data)
        for step in range(3):
            optimizer.zero_grad()
            loss = (weight * weight * 3).sum()
            loss.backward()
            if guarded:
                optimizer.guard = guard.numbers
                guard.judge([loss.detach()], optimizer.gather_gradients(), 0.5, step)
            else:
                optimizer.clip_grad_norm(0.5)
            optimizer.step()
        found.append(weight.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
