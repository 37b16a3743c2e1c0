"""Methods and arguments by their own names: no wrapper around a call, `help()` lists each once."""

import inspect
import pydoc
import re
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

from tinygrad_lite import Tensor, compositions, functional, nn, ops, optim
from tinygrad_lite import functional as F

PUBLIC = {name: getattr(Tensor, name) for name in dir(Tensor) if name[0] != "_"}

# --- the path of a call -----------------------------------------------------------------------------------------

FAILING = [  # the first of the engine's functions that the traceback shows
    (lambda x: (x * x).sum().backward(x), ["backward", "check_gradient"]),
    (lambda x: twice(x * x), ["backward", "walk_back", "collect"]),
    (lambda x: x.amax(axis=5), ["amax", "_extreme", "as_axes", "one_axis"]),
    (lambda x: x.mean(5), ["mean", "sum", "as_axes", "one_axis"]),
    (lambda x: x.sum(axis=5), ["sum", "as_axes", "one_axis"]),
    (lambda x: Tensor([[1.0], [1.0, 2.0]]), ["__init__"]),
    (lambda x: nn.Linear(-1, 2), ["__init__", "create"]),
    (lambda x: optim.SGD([x], lr=-1.0), ["__init__", "__init__"]),
    (lambda x: F.cross_entropy(x, Tensor([7])), ["__call__", "cross_entropy_fused", "check_cross_entropy"]),
]


def twice(y):
    loss = y.sum()
    loss.backward()
    loss.backward()


@pytest.mark.parametrize(("call", "frames"), FAILING)
def test_an_error_comes_straight_from_the_function_that_was_called(call, frames):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        call(Tensor([[1.0, 2.0]], requires_grad=True))
    engine = str(Path(ops.__file__).parents[1])
    found = [frame.name for frame in traceback.extract_tb(caught.tb) if frame.filename.startswith(engine)]
    assert found[: len(frames)] == frames


def test_no_wrapper_stands_around_a_method():
    """But NumPy's errstate around some of ops/; and what the registry calls refers to its definition."""
    values = PUBLIC | {"__init__": Tensor.__init__, "__add__": Tensor.__add__}
    wrapped = {name: value for name, value in values.items() if hasattr(value, "__wrapped__")}
    assert {type(wrapped.pop(name)) for name in F.__all__ if name in wrapped} == {type(F.gelu)}
    assert {value.__code__ for value in wrapped.values()} == {np.errstate()(print).__code__}


def test_an_argument_that_a_method_does_not_have_is_refused():
    x = Tensor([[1.0, 2.0]])
    for name, method in PUBLIC.items():
        if callable(method) and "names" in inspect.signature(method).parameters:
            with pytest.raises(TypeError, match=r"^\w+: there is no argument 'depth'; it takes "):
                getattr(x, name)(depth=1)


# --- help() -----------------------------------------------------------------------------------------------------


def test_everything_public_is_documented():
    assert [name for name, value in PUBLIC.items() if not inspect.getdoc(value)] == []
    assert len(PUBLIC) > 80


def test_help_lists_one_spelling_of_each_thing():
    page = re.sub(".\b", "", pydoc.render_doc(Tensor))
    listed = set(re.findall(r"^ \|  (\w+)(?:\(| = |$)", page, re.MULTILINE))
    assert {name for name in listed if name[0] != "_"} - {"Tensor"} == PUBLIC.keys()
    assert "y = e^x, element-wise" in page
    assert PUBLIC.keys() | {"data", "grad", "op"} == {name for name in dir(Tensor([1.0])) if name[0] != "_"}


def test_a_method_has_the_text_and_the_signature_of_its_function():
    x = Tensor([1.0])
    for module, name in [(ops, "sum"), (ops, "reshape"), (compositions, "mean"), (functional, "logsumexp")]:
        function = getattr(module, name)
        assert inspect.getdoc(getattr(Tensor, name)) == inspect.getdoc(function)
        assert inspect.signature(getattr(Tensor, name)) == inspect.signature(function)
        _, *others = inspect.signature(function).parameters
        assert [*inspect.signature(getattr(x, name)).parameters] == others
    assert str(inspect.signature(x.sum)) == "(axis: 'Axis' = None, *more, keepdim: 'bool' = False, **names) -> 'Tensor'"


# --- without the shelf ------------------------------------------------------------------------------------------

REFUSED = {
    "x.sum(dim=1)": "sum: there is no argument 'dim'; it takes x, axis, keepdim",
    "x.sum(out=x)": "sum: there is no argument 'out'; write y = ...; every operation returns a new tensor",
    "x.view(2)": "'Tensor' object has no attribute 'view'",
    "tg.nn.LSTM": "module 'tinygrad_lite.nn' has no attribute 'LSTM'",
}


def test_without_the_shelf_torchs_names_are_refused_and_numpys_functions_work():
    program = f"""
import sys
sys.modules["extra"] = None
import numpy as np, tinygrad_lite as tg
x = tg.Tensor([[1.0, 3.0]])
for call in ["np.sum(x).item()", *{[*REFUSED]}]:
    try:
        print(eval(call))
    except (AttributeError, TypeError) as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8")
    assert (done.stderr, done.stdout.splitlines()) == ("", ["4.0", *REFUSED.values()])
