"""An argument is taken by position only where torch's n-th parameter means the same: the others are given by name.

torch's lists come from its own signatures: those of its Python functions, and the schemas of its operators, of which
one name may have several.
"""

import inspect

import pytest

from extra.torch_names import ACCEPTED_ARGUMENTS, Accepted, Elsewhere
from tinygrad_lite import Tensor, nn, optim
from tinygrad_lite import functional as F

pytestmark = pytest.mark.torch

# torch's name of a parameter -> ours, besides the spellings that are accepted by name.
SAME = {"condition": "x", "input": "ids", "m": "columns", "n": "rows", "normalized_shape": "width", "obj": "data"}
SAME |= {"other": "x y condition", "pad": "padding", "repeats": "times", "self": "x logits condition self"}
SAME |= {"end": "stop start", "split_sizes": "sizes", "tensor": "x"}  # of arange(5), 5 is the end
# Places at which some torch function takes something of another type, which is refused: (name, torch's parameter).
OTHER_TYPES = {("to", "dtype"), ("to", "other"), ("to", "non_blocking")}  # neither is a device
OTHER_TYPES |= {("std", "unbiased"), ("var", "unbiased")}  # a truth value is no axis
OTHER_TYPES |= {("where", "self"), ("where", "condition")}  # a condition of numbers is refused, see the docstring
OTHER_TYPES |= {("layer_norm", "normalized_shape")}  # a shape by position is refused


def ours(function, skip):
    """The names of the parameters that may be given by position, and of the one that takes all others, if any."""
    parameters = [*inspect.signature(function).parameters.values()][skip:]
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) and p.name != "more"]


def theirs(torch, name, function, skip):
    """For each torch function of this name, the parameters that may be given by position."""
    lists = []
    try:
        parameters = [*inspect.signature(function).parameters.values()][skip:]
        lists.append([p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD])
    except (TypeError, ValueError):  # built in: its schemas say it
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
            known = [a for a in schema.arguments if not a.kwarg_only]
            is_named = any("Dimname" in str(schema) for _ in known) or ".out" in str(schema)
            if known and not is_named and not any(a.name in ("out", "dimname") for a in known):
                lists.append([a.name for a in known][skip:])
    return [names for names in lists if names]


def functions():
    """All that both have: the heading, the name, our function, how many of its parameters to skip, torch's owner."""
    for name in dir(Tensor):
        value = inspect.getattr_static(Tensor, name)
        if name[0] != "_" and callable(getattr(Tensor, name)) and not isinstance(value, Accepted | Elsewhere):
            is_static = isinstance(value, staticmethod)
            yield "Tensor", name, getattr(Tensor, name), 0 if is_static else 1
    for name in F.__all__:
        yield "functional", name, getattr(F, name), 0
    for module, heading in ((nn, "nn"), (optim, "optim")):
        for name, kind in vars(module).items():
            if isinstance(kind, type) and name[0] != "_" and "__init__" in vars(kind):
                yield heading, name, kind.__init__, 1


CASES = [*functions()]


@pytest.mark.parametrize(("heading", "name", "function", "skip"), CASES, ids=[f"{h}.{n}" for h, n, *_ in CASES])
def test_a_place_means_what_it_means_in_torch(torch, heading, name, function, skip):
    owners = {"Tensor": (torch.Tensor, torch), "functional": (torch.nn.functional, torch)}
    owners |= {"nn": (torch.nn,), "optim": (torch.optim,)}
    found = next((owner for owner in owners[heading] if hasattr(owner, name)), None)
    if found is None:
        pytest.skip("torch has no such name")
    there = getattr(found, name)
    if isinstance(there, type):
        there = there.__init__
    skip = 0 if found is torch else skip  # our method, their function: both have the tensor first
    for names in theirs(torch, name, there, skip):
        for mine, other in zip(ours(function, skip), names, strict=False):
            same = {other, *ACCEPTED_ARGUMENTS.get(other, "").split(), *SAME.get(other, "").split()}
            assert mine in same or (name, other) in OTHER_TYPES, f"{heading}.{name}: {mine} is torch's {other}"
