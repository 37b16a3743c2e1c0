"""The checking mode: it names the operation that made the first NaN or infinity, and the line that called it."""

import code
import contextlib
import linecache
import sys

import numpy as np
import pytest

from tests.places import fill
from tinygrad_lite import NonFiniteError, Tensor, detect_anomaly
from tinygrad_lite.debug.anomaly import ENGINE
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.nn import Linear
from tinygrad_lite.random import random_key
from tinygrad_lite.transformer import FeedForward

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]


def leaf(data):
    return Tensor(data, requires_grad=True)


def here(offset: int) -> str:
    """This file and a line in it, relative to the line of the caller, in the form of a message."""
    frame = sys._getframe(1)
    number = frame.f_lineno + offset
    return f"{frame.f_code.co_filename}:{number} (`{linecache.getline(frame.f_code.co_filename, number).strip()}`)"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A current folder that does not contain this file, and fixed random numbers."""
    monkeypatch.chdir(tmp_path)
    with random_key(0):
        yield


# --- what is reported, and what is not ---------------------------------------------------------------------------


def test_the_operation_is_named():
    with detect_anomaly():
        with pytest.raises(NonFiniteError, match=r"^log produced an infinity \(shape \(1,\)\) from inputs without one"):
            leaf([0.0]).log()
        with pytest.raises(NonFiniteError, match=r"^div produced a NaN \(shape \(2,\)\)"):
            Tensor([0.0, 1.0]) / Tensor([0.0, 1.0])
        with pytest.raises(NonFiniteError, match=r"^cast produced an infinity"):
            Tensor([1e300], dtype="float64").cast("float32")


def test_masks_and_propagated_values_are_not_reported():
    scores = leaf([[1.0, 2.0], [3.0, 4.0]])
    with detect_anomaly():
        mask = Tensor.ones(2, 2, dtype=bool).triu(1)
        weights = scores.masked_fill(mask, -np.inf).softmax()
        assert weights.tolist()[0] == [1.0, 0.0]
        (weights * weights).sum().backward()
        assert (Tensor([np.nan]) * 2 + 1).shape == (1,)
        assert (Tensor([np.inf]) + 1).item() == np.inf
        assert Tensor([np.nan, 1.0]).sum().cast("int64").shape == ()
    assert np.isfinite(scores.grad.numpy()).all()


def test_the_mode_ends_with_its_block():
    with pytest.raises(NonFiniteError), detect_anomaly():
        Tensor([0.0]).log()
    assert Tensor([0.0]).log().item() == -np.inf
    with detect_anomaly():
        with detect_anomaly():
            pass
        with pytest.raises(NonFiniteError):
            Tensor([0.0]).log()


# --- the line ----------------------------------------------------------------------------------------------------


def test_the_line_is_named():
    with detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        leaf([0.0]).log()  # the mistake
    place = here(-1)
    assert place.endswith("(`leaf([0.0]).log()  # the mistake`)")
    assert str(caught.value) == f"log produced an infinity (shape (1,)) from inputs without one, at {place}"


MISTAKES = [  # each in a line of its own
    lambda x: 1 / x,
    lambda x: x**-1,
    lambda x: x.mean() / x.std(),
    lambda x: x.silu().log(),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_operators_and_methods_of_several_steps_are_named_by_their_line(mistake):
    with detect_anomaly(), pytest.raises(NonFiniteError) as caught:
        mistake(Tensor([0.0, 0.0]))
    first = mistake.__code__.co_firstlineno
    assert f"{__file__}:{first} (`lambda x: " in str(caught.value)


@pytest.mark.parametrize("version", [contextlib.nullcontext, composed])
def test_a_modules_line_is_that_of_its_caller(version):
    """`return F.linear(x, self.weight, self.bias)` would not tell which layer it was."""
    layer, block = Linear(2, 1), FeedForward(2, 2)
    fill(layer.weight, 1e38)
    fill(block.up.weight, 1e38)
    x = Tensor([[1e38, 1e38]])
    with detect_anomaly(), version(), np.errstate(over="ignore"):
        with pytest.raises(NonFiniteError, match="produced an infinity") as caught:
            layer(x)  # too large
        assert here(-1) in str(caught.value)
        with pytest.raises(NonFiniteError, match=r"transformer\.py:\d+ \(`.*self\.up\b"):
            block(x)


def test_a_gradient_is_reported_with_the_line_of_its_operation():
    x = leaf([0.0, 4.0])
    with detect_anomaly():
        y = x.sqrt()
        place = here(-1)
        loss = (y * 2).sum()
        with pytest.raises(NonFiniteError) as caught:
            loss.backward()
    expected = f"the gradient of sqrt produced an infinity (shape (2,)) from inputs without one, at {place}"
    assert str(caught.value) == expected


def test_a_gradient_of_an_earlier_forward_pass_says_how_to_find_its_line():
    y = leaf([0.0, 4.0]).sqrt().sum()
    unknown = "in an unknown line, because its forward pass was not checked"
    with detect_anomaly(), pytest.raises(NonFiniteError, match=unknown):
        y.backward()


def test_without_source_code_the_line_number_is_named(capsys):
    """As at Python's prompt."""
    prompt = code.InteractiveInterpreter({"x": Tensor([0.0])})
    with detect_anomaly():
        prompt.runsource("x.log()", "<stdin>")
    assert capsys.readouterr().err.endswith("from inputs without one, at <stdin>:1\n")


def test_every_name_of_the_engine_is_a_module():
    assert all(name in sys.modules for name in ENGINE)
