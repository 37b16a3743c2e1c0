"""Residual sums on a GPU: computed by the norm that follows, or when they are read."""

import numpy as np
import pytest

from tests.gpt.configs import has
from tests.tinygrad_lite.cuda.tiny_training import batch_of, tiny_gpt, tiny_seq2seq
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import launch
from tinygrad_lite.cuda.residual import Sum
from tinygrad_lite.debug.anomaly import detect_anomaly
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(5)


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


norms = pytest.mark.parametrize("norm", [layer_norm, rms_norm], ids=["layer_norm", "rms_norm"])


def arrays(rows, width, dtype="float32"):
    shapes = [(rows, width), (rows, width), (width,), (width,), (rows, width), (rows, width)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 5), (300, 36)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@norms
def test_results_and_gradients_equal_those_of_the_cpu(cuda, rows, width, dtype, norm):
    inputs = arrays(rows, width, dtype)
    for expected, found in zip(run("cpu", *inputs, norm=norm), run(cuda, *inputs, norm=norm), strict=True):
        tolerance = (3e-5 if dtype == "float32" else 1e-12) * (np.abs(expected.numpy()).max() or 1)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("width", [5, 36])
@norms
def test_a_bfloat16_part_is_added_in_float32_and_gets_a_bfloat16_gradient(cuda, width, norm):
    inputs = arrays(40, width)
    exact = run("cpu", *(a.astype("float64") for a in inputs), norm=norm)
    with precision("bfloat16"):
        found = run(cuda, *inputs, norm=norm)
    assert (found[0].dtype, found[1].dtype) == (np.float32, bfloat16())
    for expected, other in zip(exact, found, strict=True):
        error = np.linalg.norm(other.numpy().astype("float64") - expected.numpy())
        assert error < 1e-2 * np.linalg.norm(expected.numpy())


@norms
def test_the_rounded_gradient_is_the_gradient_rounded(cuda, norm):
    """The part's gradient, which the norm's kernel writes, has the same bits as that of x, converted."""
    x, part, gain, shift, dy, ds = (Tensor(a, device=cuda) for a in arrays(7, 12))
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
    x, part, gain, shift, *_ = (Tensor(a, device=cuda) for a in arrays(3, 8))
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
    x, part, *_ = (Tensor(a, device=cuda) for a in arrays(3, 8))
    total = F.residual(x, part)
    assert (total.numpy() == x.numpy() + part.numpy()).all()
    assert (total * 2).numpy().tolist() == (2 * (x.numpy() + part.numpy())).tolist()
    assert launched == ["residual"]


def test_overwriting_an_addend_before_the_sum_is_read_is_refused(cuda):
    x, part, *_ = (Tensor(a, device=cuda) for a in arrays(3, 8))
    total = F.residual(x, part)
    x[0] = 0.0
    with pytest.raises(RuntimeError, match="overwritten in place before their sum was read"):
        total.numpy()


def test_observers_see_a_computed_sum_and_every_gradient_by_itself(cuda):
    inputs = arrays(3, 8)
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
        pytest.skip("translation models have layer norms")
    model = make(cuda, **changes)
    model.loss(batch_of(model, cuda, 0)).backward()
    assert "residual" not in launched
