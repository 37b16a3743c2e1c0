"""GELU on a GPU, alone and after a linear map."""

import math

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.columns import ROW_BLOCKS
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.precision import bfloat16, precision
from tinygrad_lite.transformer import FeedForward

rng = np.random.default_rng(3)
forms = pytest.mark.parametrize("approximate", ["none", "tanh"])


def leaf(array, device, dtype="float32"):
    return Tensor(np.asarray(array, dtype), device=device, requires_grad=True)


def test_linear_gelu_is_a_product_and_one_operation(cuda):
    x, weight, bias = leaf(np.ones((2, 3)), cuda), leaf(np.ones((4, 3)), cuda), leaf(np.ones(4), cuda)
    y = F.linear_gelu(x, weight, bias)
    product, second = y._node.parents
    assert (y.op, product.op, second) == ("gelu", "linear", bias._node)
    assert product.parents == (x._node, weight._node)
    assert F.gelu(x).op == "gelu"
    with composed():
        assert F.linear_gelu(x, weight, bias).op == F.gelu(x).op == "add"


@forms
def test_float32_errors_are_within_their_bounds(cuda, approximate):
    """Within a few units in the last place of the definition in float64, for |x| <= 12 (half a unit of 12 is 5e-7)."""
    numbers = np.linspace(-12, 12, 4801).astype(np.float32)
    x, exact = leaf(numbers, cuda), Tensor(numbers.astype(np.float64), requires_grad=True)
    y, z = F.gelu(x, approximate=approximate), F.gelu(exact, approximate=approximate)
    y.sum().backward()
    z.sum().backward()
    np.testing.assert_allclose(y.numpy(), z.numpy(), rtol=0, atol=2e-6)
    np.testing.assert_allclose(x.grad.numpy(), exact.grad.numpy(), rtol=0, atol=3e-6)


@forms
@pytest.mark.parametrize("width", [8, 7])
@pytest.mark.parametrize("with_bias", [True, False])
def test_bfloat16_rounds_to_eight_bits(cuda, approximate, width, with_bias):
    """Activations are rounded once per product and once per GELU, each by at most 2^-9 of a number."""
    arrays = [rng.standard_normal((2, 9, 16)), rng.standard_normal((width, 16)) / 4, rng.standard_normal(width)]
    arrays = arrays if with_bias else arrays[:2]
    names, dy = ("x", "weight", "bias"), rng.standard_normal((2, 9, width))
    exact = [Tensor(a, requires_grad=True) for a in arrays]
    F.linear_gelu(*exact, approximate=approximate).backward(Tensor(dy))
    with precision("bfloat16"):
        inputs = [leaf(a, cuda) for a in arrays]
        y = F.linear_gelu(*inputs, approximate=approximate)
        assert y.dtype == bfloat16()
        y.backward(Tensor.wrap(Tensor(dy.astype(np.float32), device=cuda).data.astype(bfloat16())))
    expected = F.linear_gelu(*exact, approximate=approximate).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float64), expected, rtol=0, atol=0.02 * np.abs(expected).max())
    for name, x, other in zip(names, inputs, exact, strict=False):
        largest = np.abs(other.grad.numpy()).max()
        assert x.grad.dtype == np.float32
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=0, atol=0.02 * largest, err_msg=name)


@forms
def test_gelu_of_bfloat16_is_bfloat16(cuda, approximate):
    x = leaf(np.linspace(-4, 4, 41), cuda).detach()
    rounded = Tensor.wrap(x.data.astype(bfloat16()))
    y = F.gelu(rounded, approximate=approximate)
    assert y.dtype == bfloat16()
    exact = F.gelu(Tensor(rounded.numpy().astype(np.float64)), approximate=approximate).numpy()
    np.testing.assert_allclose(y.numpy().astype(np.float64), exact, rtol=2**-8, atol=1e-6)


def test_tf32_and_float32_differ_only_in_the_product(cuda):
    x, weight, bias = (leaf(rng.standard_normal(shape), cuda) for shape in ((5, 64), (8, 64), (8,)))
    exact = F.linear_gelu(x, weight, bias).numpy()
    with precision("tf32"):
        rounded = F.linear_gelu(x, weight, bias)
        product = F.linear(x, weight)
    assert rounded.dtype == np.float32
    assert 0 < np.abs(rounded.numpy() - exact).max() < 0.1
    np.testing.assert_allclose(F.gelu(product + bias).numpy(), rounded.numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 255, 256, 257, 1024, 1025, 4100])
def test_every_element_is_computed(cuda, size):
    x = leaf(np.full(size, 0.7), cuda)
    y = F.gelu(x)
    y.sum().backward()
    assert len(np.unique(y.numpy())) == len(np.unique(x.grad.numpy())) == 1
    np.testing.assert_allclose(y.numpy()[-1], 0.7 * 0.758036, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 8 * ROW_BLOCKS + 1])
def test_the_bias_is_added_to_every_row(cuda, rows):
    """Also where a thread takes several rows, and where blocks have one row."""
    x, bias, dy = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 4), (4,), (rows, 4)))
    found = []
    for place in (cuda, "cpu"):
        inputs = leaf(x, place), Tensor.eye(4, device=place), leaf(bias, place)
        y = F.linear_gelu(*inputs)
        y.backward(Tensor(dy, device=place))
        found.append((y.numpy(), inputs[0].grad.numpy(), inputs[2].grad.numpy()))
    for mine, right in zip(*found, strict=True):
        np.testing.assert_allclose(mine, right, rtol=0, atol=2e-6 * max(1, np.abs(right).max()))


def test_an_array_may_begin_between_packs(cuda):
    whole = Tensor(np.linspace(-3, 3, 17).astype(np.float32), device=cuda)
    part = Tensor.wrap(whole.data[1:])  # 16 numbers, but not at a multiple of 16 bytes
    np.testing.assert_allclose(F.gelu(part).numpy(), F.gelu(whole).numpy()[1:], rtol=1e-6)


@forms
def test_nan_and_infinity_are_passed_on(cuda, approximate):
    x = leaf([math.nan, math.inf, 1.0, 0.0], cuda)
    y = F.gelu(x, approximate=approximate)
    y.backward(Tensor(np.ones(4, np.float32), device=cuda))
    assert np.isnan(y.numpy()).tolist() == [True, False, False, False]
    assert y.numpy()[1] == math.inf
    assert np.isnan(x.grad.numpy())[0]
    assert np.isfinite(x.grad.numpy()[2:]).all()


@forms
def test_far_from_zero_it_is_relu(cuda, approximate):
    x = leaf([-1e4, -40.0, 40.0, 1e4], cuda)
    y = F.gelu(x, approximate=approximate)
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), [0, 0, 40, 1e4], rtol=1e-7)
    np.testing.assert_allclose(x.grad.numpy(), [0, 0, 1, 1], atol=1e-7)


@pytest.mark.parametrize("types", [("f4", "f8", "f8"), ("f8", "f4", "f4"), ("f4", "f4", "f8"), ("f4", "f8", "f4")])
def test_mixed_types_give_float64_and_each_input_its_own_type(cuda, types):
    arrays = [
        rng.standard_normal(shape).astype(kind) for shape, kind in zip([(2, 4), (8, 4), (8,)], types, strict=True)
    ]
    inputs = [Tensor(a, device=cuda, requires_grad=True) for a in arrays]
    y = F.linear_gelu(*inputs)
    y.sum().backward()
    assert y.dtype == np.float64
    assert [x.grad.dtype for x in inputs] == [np.dtype(kind) for kind in types]
    expected = F.linear_gelu(*map(Tensor, arrays)).numpy()
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6, atol=1e-9)  # 1 + erf(z) of z = -5 has few digits


def test_integers_count_as_float32_and_float16_is_rejected(cuda):
    y = F.gelu(Tensor([0, 1], device=cuda))
    assert y.dtype == np.float32
    np.testing.assert_allclose(y.numpy(), [0, 0.841345], rtol=1e-6)
    with pytest.raises(TypeError, match="float16 is for storage only"):
        F.gelu(Tensor(np.ones(3, np.float16), device=cuda))


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [((8, 5), (8,), "linear: x .* do not fit"), ((8, 4), (4,), r"needs a bias of shape \(8,\), not \(4,\)")],
)
def test_shapes_that_do_not_fit_are_refused(cuda, weight, bias, message):
    with pytest.raises(ValueError, match=message):
        F.linear_gelu(leaf(np.ones((2, 4)), cuda), leaf(np.ones(weight), cuda), leaf(np.ones(bias), cuda))


def test_an_unknown_form_is_refused(cuda):
    with pytest.raises(ValueError, match="gelu: approximate must be 'none' or 'tanh', not 'sigmoid'"):
        F.linear_gelu(leaf(np.ones((2, 4)), cuda), leaf(np.ones((8, 4)), cuda), None, approximate="sigmoid")


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_the_feed_forward_layer_equals_that_of_the_cpu(cuda, activation):
    layer, x = FeedForward(4, 12, activation=activation).to("cpu", "float64"), rng.standard_normal((2, 3, 4))
    expected = layer(Tensor(x)).numpy()
    np.testing.assert_allclose(layer.to(cuda)(Tensor(x, device=cuda)).numpy(), expected, atol=1e-12)


def test_the_checking_mode_names_the_callers_line(cuda):
    x, weight = leaf([[1e38, 1e38]], cuda), leaf([[1e38, 1e38]], cuda)
    with detect_anomaly(), pytest.raises(NonFiniteError, match=r"test_gelu\.py:\d+ \(`F.linear_gelu"):
        F.linear_gelu(x, weight, leaf([0.0], cuda))
