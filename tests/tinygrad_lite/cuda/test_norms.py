"""Norms, linear maps and residual sums on a GPU: what their definitions do not try; and the naive kernels."""

import numpy as np
import pytest

from tests.gpt.configs import has
from tests.tinygrad_lite.cuda.naive import layer_norm_naive, softmax_naive
from tests.tinygrad_lite.cuda.tiny_training import batch_of, tiny_gpt, tiny_seq2seq
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import launch
from tinygrad_lite.cuda.residual import Sum
from tinygrad_lite.debug.anomaly import NonFiniteError, detect_anomaly
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(22)

# --- norms and linear maps ------------------------------------------------------------------------------------


norms = pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm], ids=["layer_norm", "rms_norm"])


def arrays(rows, width):
    shapes = [(rows, width), (width,), (6, width), (6,), (rows, 6)]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@norms
def test_the_residual_stream_stays_float32_and_activations_are_bfloat16(cuda, norm):
    x, gain, *_ = (Tensor(a, device=cuda, requires_grad=True) for a in arrays(3, 8))
    with precision("bfloat16"):
        h = norm(x, weight=gain)
        assert h.dtype == bfloat16()
        np.testing.assert_allclose(h.numpy().astype("float64"), norm(x.detach(), weight=gain).numpy(), rtol=2**-8)
        assert F.linear(h, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert F.linear(x, Tensor.eye(8, device=cuda)).dtype == bfloat16()
        assert (x + h).dtype == np.float32
        (x + h).sum().backward()
    assert x.grad.dtype == np.float32


@norms
def test_nan_and_infinity_stay_in_their_row(cuda, norm):
    x, gain, *_ = arrays(40, 8)
    x[1, 2], x[2, 3] = np.nan, np.inf
    given = Tensor(x, device=cuda, requires_grad=True)
    y = norm(given, weight=Tensor(gain, device=cuda))
    y.sum().backward()
    for array in (y.numpy(), given.grad.numpy()):
        assert np.isnan(array).any(1).tolist() == [False, True, True, *[False] * 37]
        assert np.isfinite(array[[0, *range(3, 40)]]).all()


@pytest.mark.parametrize("mode", ["float32", "bfloat16"])
def test_gradients_are_added_to_existing_ones(cuda, mode):
    """A product may be added directly to an optimizer's memory, with the same result."""
    x, _, weight, bias, _ = arrays(5, 8)
    found = []
    for start in (None, 0.0, 3.0):
        parameter = Tensor(weight, device=cuda, requires_grad=True)
        if start is not None:
            parameter.grad = parameter.detach().full_like(start)
        with precision(mode):
            for _ in range(2):
                F.linear(Tensor(x, device=cuda), parameter, Tensor(bias, device=cuda)).cast("float32").sum().backward()
        found.append(parameter.grad.numpy() - (start or 0))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5)
    assert np.abs(found[0]).max() > 0.1


def test_the_checking_mode_detects_a_broken_gradient(cuda):
    x = Tensor([[1e30, 1.0]], device=cuda)
    weight = Tensor([[1e-30, 0.0]], device=cuda, requires_grad=True)
    weight.grad = weight.detach().zeros_like()
    with detect_anomaly(), pytest.raises(NonFiniteError, match="the gradient of linear produced an infinity"):
        (F.linear(x, weight) * 1e30).backward()


# --- residual sums, computed by the norm that follows, or when they are read ----------------------------------


@pytest.fixture
def launched(monkeypatch):
    """The names of the kernels that were launched."""
    names, kernel = [], launch.kernel

    def recorded(file, name, **types):
        names.append(name)
        return kernel(file, name, **types)

    recorded.cache_clear = kernel.cache_clear
    for module in ("layer_norm", "rms_norm", "launch"):
        monkeypatch.setattr(f"tinygrad_lite.cuda.{module}.kernel", recorded)
    return names


def layer_norm(x, gain, shift):
    return F.layer_norm(x, weight=gain, bias=shift)


def rms_norm(x, gain, shift):
    """RMS norm as if it had a shift."""
    return F.rms_norm(x, weight=gain)


def run(device, x, part, gain, shift, dy, ds, mode="float32", norm=layer_norm):
    """norm(x + part), with a gradient that comes past the norm too: results and gradients."""
    given = [Tensor(a, device=device, requires_grad=True) for a in (x, part, gain, shift)]
    flowing = given[1].linear(Tensor.eye(len(gain), dtype=given[1].dtype, device=device))  # bfloat16, if that is used
    total = F.residual(given[0], flowing)
    y = norm(total, given[2], given[3])
    dy, ds = Tensor(dy, device=device), Tensor(ds, device=device)
    ((y.cast(dy.dtype) * dy).sum() + (total * ds).sum()).backward()
    return [total, y] + [tensor.grad for tensor in given if tensor.grad is not None]


both_norms = pytest.mark.parametrize("norm", [layer_norm, rms_norm], ids=["layer_norm", "rms_norm"])


def addends(rows, width, dtype="float32"):
    shapes = [(rows, width), (rows, width), (width,), (width,), (rows, width), (rows, width)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 5), (300, 36)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@both_norms
def test_results_and_gradients_equal_those_of_the_cpu(cuda, rows, width, dtype, norm):
    inputs = addends(rows, width, dtype)
    for expected, found in zip(run("cpu", *inputs, norm=norm), run(cuda, *inputs, norm=norm), strict=True):
        tolerance = (3e-5 if dtype == "float32" else 1e-12) * (np.abs(expected.numpy()).max() or 1)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("width", [5, 36])
@both_norms
def test_a_bfloat16_part_is_added_in_float32_and_gets_a_bfloat16_gradient(cuda, width, norm):
    inputs = addends(40, width)
    exact = run("cpu", *(a.astype("float64") for a in inputs), norm=norm)
    with precision("bfloat16"):
        found = run(cuda, *inputs, norm=norm)
    assert (found[0].dtype, found[1].dtype) == (np.float32, bfloat16())
    for expected, other in zip(exact, found, strict=True):
        error = np.linalg.norm(other.numpy().astype("float64") - expected.numpy())
        assert error < 1e-2 * np.linalg.norm(expected.numpy())


@both_norms
def test_the_rounded_gradient_is_the_gradient_rounded(cuda, norm):
    """The part's gradient, which the norm's kernel writes, has the same bits as that of x, converted."""
    x, part, gain, shift, dy, ds = (Tensor(a, device=cuda) for a in addends(7, 12))
    x.requires_grad_()
    with precision("bfloat16"):
        weight = Tensor.eye(12, device=cuda).requires_grad_()
        flowing = part.linear(weight).retain_grad()
        total = F.residual(x, flowing)
        y = norm(total, gain, shift)
        ((y.cast("float32") * dy).sum() + (total * ds).sum()).backward()
    assert flowing.grad.dtype == bfloat16()
    assert (flowing.grad.numpy() == x.grad.numpy().astype(bfloat16())).all()


def test_a_norm_computes_the_sum_and_nothing_else_does(cuda, launched):
    x, part, gain, shift, *_ = (Tensor(a, device=cuda) for a in addends(3, 8))
    total = F.residual(x, part)
    assert type(total) is Sum
    assert (total.shape, total.dtype, total.device, total.numel()) == ((3, 8), np.float32, cuda, 24)
    assert launched == []
    y = layer_norm(total, gain, shift)
    assert type(total) is Tensor
    assert (total.numpy() == x.numpy() + part.numpy()).all()
    np.testing.assert_allclose(y.numpy(), layer_norm(x + part, gain, shift).numpy(), atol=1e-6)
    assert launched == ["layer_norm_forward"] * 2


def test_a_sum_that_no_norm_reads_is_computed_when_it_is_read(cuda, launched):
    x, part, *_ = (Tensor(a, device=cuda) for a in addends(3, 8))
    total = F.residual(x, part)
    assert (total.numpy() == x.numpy() + part.numpy()).all()
    assert (total * 2).numpy().tolist() == (2 * (x.numpy() + part.numpy())).tolist()
    assert launched == ["residual"]


def test_overwriting_an_addend_before_the_sum_is_read_is_refused(cuda):
    x, part, *_ = (Tensor(a, device=cuda) for a in addends(3, 8))
    total = F.residual(x, part)
    x[0] = 0.0
    with pytest.raises(RuntimeError, match="overwritten in place before their sum was read"):
        total.numpy()


def test_observers_see_a_computed_sum_and_every_gradient_by_itself(cuda):
    inputs = addends(3, 8)
    with detect_anomaly():
        watched = run(cuda, *inputs)
    for one, other in zip(watched, run(cuda, *inputs), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [tiny_gpt, tiny_seq2seq])
@pytest.mark.parametrize("changes", [{}, {"norm_first": False}, {"norm": "rmsnorm"}], ids=str)
def test_a_norm_computes_every_sum_of_a_model(cuda, launched, make, changes):
    if make is tiny_gpt and not has(changes):
        pytest.skip("a part of the shelf")
    if make is tiny_seq2seq and "norm" in changes:
        pytest.skip("translation models have layer both_norms")
    model = make(cuda, **changes)
    model.loss(batch_of(model, cuda, 0)).backward()
    assert "residual" not in launched


# --- the naive kernels, which equal the formulas in NumPy as the fast ones do ---------------------------------


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 4), (7, 33), (130, 36), (3, 132), (2, 1029)])
@pytest.mark.parametrize("eps", [1e-5, 0.5])
def test_the_naive_layer_norm(cuda, rows, width, eps):
    place, shapes = get_device(cuda), ((rows, width), (width,), (width,))
    x, weight, bias = (rng.standard_normal(shape) + 3 for shape in shapes)
    h = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
    found = layer_norm_naive(*(place.from_host(a.astype(np.float32)) for a in (x, weight, bias)), eps)
    np.testing.assert_allclose(place.to_host(found), h * weight + bias, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (5, 8), (8, 8), (33, 33), (40, 132), (9, 4), (130, 130)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_the_naive_softmax(cuda, t, s, is_causal):
    place, scores, ahead = get_device(cuda), 4 * rng.standard_normal((2, 3, t, s)), s - t if is_causal else s
    seen = np.arange(s) <= np.arange(t)[:, None] + ahead
    powers = np.where(seen, np.exp(scores), 0)
    expected = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)  # a query that sees no key gets zeros
    found = place.to_host(softmax_naive(place.from_host(scores.astype(np.float32)), ahead))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert not found[..., ~seen].any()
