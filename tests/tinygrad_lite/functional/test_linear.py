import functools
from contextlib import nullcontext

import numpy as np
import pytest

from tests.places import here
from tinygrad_lite import Tensor
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.linear import linears
from tinygrad_lite.functional.registry import composed

pytestmark = pytest.mark.every_device

# Several maps of one input.
WIDTHS = (5, 1, 3)


def inputs_of_several(shape, bias, dtype=np.float64):
    """x, three weights, and their biases: all of them, none, or only the first; the same numbers in every call."""
    numbers = np.random.default_rng(2)
    shapes = [shape, *((width, shape[-1]) for width in WIDTHS)]
    shapes += [(width,) for width in WIDTHS[: {"all": 3, "none": 0, "one": 1}[bias]]]
    return [Tensor(numbers.standard_normal(s).astype(dtype), device=here(), requires_grad=True) for s in shapes]


def side_by_side(version, x, *parameters):
    """The results of a version of `linears`, joined along the last axis."""
    biases = [*parameters[len(WIDTHS) :], *[None] * len(WIDTHS)][: len(WIDTHS)]
    first, *others = version(x, list(parameters[: len(WIDTHS)]), biases)
    return first.cat(*others, axis=-1)


@pytest.mark.parametrize("bias", ["all", "none", "one"])
@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 3, 4), (0, 4)])
def test_several_maps_equal_single_ones(shape, bias):
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-5)):
        found = []
        for version in (linears.composed, linears):
            inputs = inputs_of_several(shape, bias, dtype)
            with composed() if version is linears.composed else nullcontext():
                y = side_by_side(version, *inputs)
                (y * y).sum().backward()
            found.append([y.numpy(), *(x.grad.numpy() for x in inputs)])
        for one, other in zip(*found, strict=True):
            assert one.dtype == other.dtype == dtype
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", ["all", "none", "one"])
def test_several_maps_pass_gradcheck(bias):
    for version in (linears.composed, linears.version_for(here())):
        gradcheck(functools.partial(side_by_side, version), inputs_of_several((2, 3, 4), bias))


def test_several_maps_refuse_shapes_that_do_not_fit():
    x, wide, narrow = (Tensor.ones(*shape, device=here()) for shape in ((2, 4), (3, 5), (3, 4)))
    with pytest.raises(ValueError, match=r"linear: x .* do not fit: \(2, 4\) and \(3, 5\)"):
        linears(x, [narrow, wide], [None, None])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        linears(x, [narrow, narrow], [None])
