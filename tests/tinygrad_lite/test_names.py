"""Methods and arguments by their own names: no wrapper around a call, `help()` lists each once."""

import inspect
import pydoc
import re
import subprocess
import sys

import numpy as np
import pytest

from tinygrad_lite import Tensor
from tinygrad_lite import functional as F

PUBLIC = {name: getattr(Tensor, name) for name in dir(Tensor) if name[0] != "_"}

# --- calls ------------------------------------------------------------------------------------------------------


def test_no_wrapper_stands_around_a_method():
    """But NumPy's errstate around some of ops/; and what the registry calls refers to its definition."""
    values = PUBLIC | {"__init__": Tensor.__init__, "__add__": Tensor.__add__}
    wrapped = {name: value for name, value in values.items() if hasattr(value, "__wrapped__")}
    assert {type(wrapped.pop(name)) for name in F.__all__ if name in wrapped} == {type(F.gelu)}
    assert {value.__code__ for value in wrapped.values()} == {np.errstate()(print).__code__}


def test_an_argument_that_a_method_does_not_have_is_refused():
    x = Tensor([[1.0, 2.0]])
    for name, method in PUBLIC.items():
        parameters = inspect.signature(method).parameters if callable(method) else ()
        if "names" in parameters:
            with pytest.raises(TypeError, match=r"^\w+: there is no argument 'depth'; it takes "):
                getattr(x, name)(depth=1)
        if "more" in parameters:
            with pytest.raises(TypeError, match=r"^\w+: (by position it takes |x.a\w+\(axis\) gives the values)"):
                getattr(x, name)(*range(9))


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


# --- without the shelf ------------------------------------------------------------------------------------------

REFUSED = {
    "x.sum(dim=1)": "sum: there is no argument 'dim'; it takes x, axis, keepdim",
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
