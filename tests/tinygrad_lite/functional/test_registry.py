"""Every fused version against its definition, and the switch between them."""

from typing import Any

import numpy as np
import pytest

from tests.places import here
from tests.standin import standin_device
from tests.tinygrad_lite.functional.twin_cases import CASES, Arguments, tensors
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.device import keyed_rng, random_key
from tinygrad_lite.functional.registry import REGISTRY, ReferenceAndFused, composed, set_composed
from tinygrad_lite.optim import adamw

ALL = [(name, case) for name, cases in CASES.items() for case in cases]
ONE_TENSOR = ("gelu", "dropout", "relu_squared")  # is all that these take
DIFFERENTIABLE = [(name, case) for name, case in ALL if name != "adamw"]  # an update has no gradient


def outcome(version: Any, arguments: Arguments, dtype: Any, **how: Any) -> dict[str, np.ndarray]:
    """The value of a call and the gradients of all inputs; of an update in place, what became of the inputs.

    The upstream gradient is random, and read-only: a backward that writes into it raises ValueError.
    """
    made = tensors(arguments, dtype, **how)
    with random_key(7):
        y = version(**made)
    inputs = {name: value for name, value in made.items() if isinstance(value, Tensor) and value.requires_grad}
    if y is None:
        return {name: x.numpy() for name, x in inputs.items()}
    if y.requires_grad:
        dy = keyed_rng(1, "upstream").standard_normal(y.shape).astype(dtype)
        dy = np.asarray(dy)
        dy.flags.writeable = False
        y.backward(Tensor.wrap(dy).to(y.device))
    return {"result": y.numpy()} | {name: x.grad.numpy() for name, x in inputs.items()}


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """The same names, shapes and types, and no difference above `tolerance` times the largest expected number."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].shape == array.shape, name
        assert actual[name].dtype == array.dtype, name
        largest = np.max(np.abs(array), initial=0.0)
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=tolerance * largest, err_msg=name)


def test_every_operation_has_cases_and_a_fused_version():
    assert REGISTRY.keys() == CASES.keys(), "add the new operation's calls to twin_cases.py"
    without = {name for name, twin in REGISTRY.items() if "cpu" not in twin.fused}
    assert without == {"linear_gelu"}  # there it is made of two others
    assert all(twin.fused for twin in REGISTRY.values())
    assert all(twin.name == name for name, twin in REGISTRY.items())


@pytest.mark.parametrize(("name", "case"), ALL)
def test_fused_equals_composed_in_float64(name, case):
    twin, arguments = REGISTRY[name], CASES[name][case]
    with composed():
        expected = outcome(twin, arguments, np.float64)
    assert_close(outcome(twin, arguments, np.float64), expected, 1e-10)


@pytest.mark.parametrize(("name", "case"), ALL)
def test_fused_equals_composed_in_float32(name, case):
    # Rounding is 6e-8 of a number; sums of a few hundred of them in different orders differ by less than 1e-5 of
    # the largest.
    twin, arguments = REGISTRY[name], CASES[name][case]
    with composed():
        expected = outcome(twin, arguments, np.float32)
    assert_close(outcome(twin, arguments, np.float32), expected, 1e-5)


@pytest.mark.parametrize(("name", "case"), ALL)
def test_inputs_need_not_be_contiguous(name, case):
    for version in (REGISTRY[name].composed, REGISTRY[name].version_for("cpu")):
        expected = outcome(version, CASES[name][case], np.float64)
        assert_close(outcome(version, CASES[name][case], np.float64, strided=True), expected, 1e-10)


@pytest.mark.parametrize("name", CASES)
def test_composed_is_valid_on_every_device(name, device):
    for arguments in CASES[name].values():
        expected = outcome(REGISTRY[name].composed, arguments, np.float64)
        assert_close(outcome(REGISTRY[name].composed, arguments, np.float64, device=device), expected, 1e-10)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ONE_TENSOR])
def test_tensors_on_two_devices_are_refused(name):
    _, arguments, *_ = CASES[name].values()
    made = tensors(arguments, np.float64)
    *_, last = (key for key, value in made.items() if isinstance(value, Tensor))
    with standin_device() as elsewhere:
        made[last] = made[last].to(elsewhere)
        with pytest.raises(ValueError, match=f"{name}: tensors on cpu and standin cannot be combined"):
            REGISTRY[name](**made)


@pytest.mark.parametrize("kind", ["composed", "fused"])
@pytest.mark.parametrize(("name", "case"), DIFFERENTIABLE)
def test_both_versions_pass_gradcheck(name, case, kind):
    twin, made = REGISTRY[name], tensors(CASES[name][case], np.float64, device=here())
    version = twin.composed if kind == "composed" else twin.version_for(here())
    inputs = {key: made.pop(key) for key, value in list(made.items()) if isinstance(value, Tensor)}
    numbers = sum(x.numel() for x in inputs.values() if x.requires_grad)
    gradcheck(
        lambda *values: version(**dict(zip(inputs, values, strict=True)), **made),
        list(inputs.values()),
        directions=0 if numbers <= 200 else 2,
    )


@pytest.mark.parametrize(("name", "case"), DIFFERENTIABLE)
def test_gradients_may_arrive_in_any_layout(name, case):
    """The gradient of a sum is one number stretched over the shape, that of a transpose is strided."""
    twin = REGISTRY[name]
    stretched, plain = [], []
    for gradients, ones in (
        (stretched, lambda shape: np.broadcast_to(np.float64(0.5), shape)),
        (plain, lambda shape: np.full(shape, 0.5)),
    ):
        made = tensors(CASES[name][case], np.float64)
        with random_key(7):
            y = twin.version_for("cpu")(**made)
        y.backward(Tensor.wrap(ones(y.shape)))
        gradients += [x.grad.numpy() for x in made.values() if isinstance(x, Tensor) and x.requires_grad]
    for a, b in zip(stretched, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


# --- the switch -----------------------------------------------------------------------------------------------


@pytest.fixture
def pair(monkeypatch):
    """A twin whose versions say which one ran."""
    monkeypatch.setattr("tinygrad_lite.functional.registry.REGISTRY", {})

    def which_composed(x, y=None):
        return "composed"

    return ReferenceAndFused(which_composed, cpu=lambda x, y=None: "fused", cuda=lambda x, y=None: "fused")


def test_the_fused_version_runs_unless_switched_off(pair):
    x = Tensor([1.0])
    assert pair(x) == "fused"
    with composed():
        assert pair(x) == "composed"
        with composed():
            pass
        assert pair(x) == "composed"
    assert pair(x) == "fused"


def test_an_error_inside_leaves_the_switch_as_it_was(pair):
    with pytest.raises(KeyError), composed():
        raise KeyError
    assert pair(Tensor([1.0])) == "fused"


def test_set_composed_stays_until_set_back(pair):
    set_composed(True)
    try:
        assert pair(Tensor([1.0])) == "composed"
    finally:
        set_composed(False)
    assert pair(Tensor([1.0])) == "fused"


@pytest.mark.parametrize("name", [name for name in CASES if "cpu" in REGISTRY[name].fused and name != "adamw"])
def test_the_switch_changes_what_really_runs(name):
    """Fused operations are one node that bears the operation's name, composed ones end in a primitive."""
    _, arguments, *_ = CASES[name].values()
    assert getattr(F, name)(**tensors(arguments, np.float64)).op == name
    with composed():
        assert getattr(F, name)(**tensors(arguments, np.float64)).op != name


def test_the_switch_reaches_the_optimizer():
    assert adamw.version_for("cpu") is adamw.fused["cpu"]
    with composed():
        assert adamw.version_for("cpu") is adamw.composed


def test_a_device_without_a_fused_version_runs_the_composed_one():
    for twin in REGISTRY.values():
        assert twin.version_for("a device of tomorrow") is twin.composed


def test_arguments_may_be_given_by_name():
    x, w = Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])
    assert F.linear(x=x, weight=w).tolist() == F.linear(x, w).tolist() == [[11.0]]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("gelu", "dropout", "adamw")])
def test_lists_beside_a_tensor_become_tensors(name):
    _, arguments, *_ = CASES[name].values()
    made = tensors(arguments, np.float32, device=here())
    expected = REGISTRY[name](**made)
    first, *others = (key for key, value in made.items() if isinstance(value, Tensor))
    lists = {key: made.pop(key).tolist() for key in others}
    x, settings = made.pop(first), made
    for y in (REGISTRY[name](**{first: x}, **lists, **settings), REGISTRY[name](x, *lists.values(), **settings)):
        assert y.tolist() == expected.tolist()
        assert y.dtype == np.float32
    y.sum().backward()
    assert x.grad is not None


def test_numbers_and_arrays_beside_a_tensor_become_tensors():
    logits = Tensor([0.5, 1.0, 2.0], requires_grad=True)
    assert F.cross_entropy(logits, 2).item() == F.cross_entropy(logits, Tensor(2)).item()
    assert F.embedding(Tensor([[1.0], [2.0]]), 1).tolist() == [2.0]
    if here() == "cpu":
        assert F.embedding(Tensor([[1.0], [2.0]]), np.array([1, 0])).tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.gelu(np.ones(3)), "gelu: needs tensors as x; make them with Tensor(...)"),
        (lambda x: F.embedding([[1.0]], [0]), "embedding: needs tensors as weight, ids; make them with Tensor(...)"),
        (lambda x: F.linear(x, None), "linear: needs tensors as x, weight; make them with Tensor(...)"),
        (lambda x: F.linear(x, "weights"), "Tensor: elements of type <U7 are not numbers"),
        (lambda x: F.softmax([1.0, 2.0]), "softmax: needs a tensor; make one with Tensor(...)"),
        (lambda x: F.log_softmax(np.ones(2)), "log_softmax: needs a tensor; make one with Tensor(...)"),
        (lambda x: F.logsumexp(1.0), "logsumexp: needs a tensor; make one with Tensor(...)"),
    ],
)
def test_a_call_without_tensors_says_so(call, message):
    with pytest.raises(TypeError) as caught:
        call(Tensor([[1.0]]))
    assert str(caught.value) == message


def test_a_twin_has_the_docstring_of_its_definition():
    assert F.layer_norm.__doc__ == F.layer_norm.composed.__doc__
    assert "(..., C)" in F.layer_norm.__doc__
