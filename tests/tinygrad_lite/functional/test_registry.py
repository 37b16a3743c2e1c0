"""Every fused version is compared with its reference version; and the choice between them."""

import inspect
import itertools

import numpy as np
import pytest

from tests.places import here
from tests.standin import standin_device
from tests.tinygrad_lite.functional.version_cases import CASES, assert_close, of_case, outcome, tensors
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.debug.gradcheck import gradcheck
from tinygrad_lite.functional.registry import REGISTRY, ReferenceAndFused, composed, set_composed
from tinygrad_lite.random import random_key

pytestmark = pytest.mark.every_device

ALL = [(name, case) for name, cases in CASES.items() for case in cases]
UPDATES = ("adamw", "muon")  # by an optimizer, in place, without a gradient
DIFFERENTIABLE = [(name, case) for name, case in ALL if name not in UPDATES]
ONE_TENSOR = "gelu dropout softmax log_softmax relu_squared avg_pool2d max_pool2d".split()  # operations of one tensor


def test_every_operation_has_cases_and_a_fused_version():
    # `linears` gives several tensors, and is compared in test_linear.py.
    assert REGISTRY.keys() - {"linears"} == CASES.keys(), "add the new operation's calls to version_cases.py"
    # On the CPU, one of these is an operation with a fused version, several times, and the sum of a residual connection
    # is a single node already.
    without = {name for name, operation in REGISTRY.items() if "cpu" not in operation.fused}
    assert without == {"linears", "residual"}
    assert all(operation.name == name for name, operation in REGISTRY.items())


@pytest.mark.parametrize(("name", "case"), ALL)
def test_fused_equals_composed(name, case):
    # Rounding in float32 is 6e-8 of a number; sums of a few hundred numbers in different orders differ by less than
    # 1e-5 of the largest one.
    assert_close(of_case(name, case, is_composed=False), of_case(name, case), 1e-10)
    operation, arguments = REGISTRY[name], CASES[name][case]
    with composed():
        expected = outcome(operation, arguments, np.float32)
    assert_close(outcome(operation, arguments, np.float32), expected, 1e-5)


@pytest.mark.parametrize(("name", "case"), ALL)
def test_inputs_need_not_be_contiguous(name, case):
    found = outcome(REGISTRY[name].version_for("cpu"), CASES[name][case], strided=True)
    assert_close(found, of_case(name, case, is_composed=False), 1e-10)


@pytest.mark.parametrize("name", CASES)
def test_composed_is_valid_on_every_device(name, device):
    for case, arguments in CASES[name].items():
        assert_close(outcome(REGISTRY[name].composed, arguments, device=device), of_case(name, case), 1e-10)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ONE_TENSOR])
def test_tensors_on_two_devices_are_rejected(name):
    _, arguments, *_ = CASES[name].values()
    made = tensors(arguments, np.float64)
    *_, last = (key for key, value in made.items() if isinstance(value, Tensor))
    with standin_device() as elsewhere:
        made[last] = made[last].to(elsewhere)
        with pytest.raises(ValueError, match=f"{name}: tensors on cpu and standin cannot be combined"):
            REGISTRY[name](**made)


@pytest.mark.parametrize(("name", "case"), DIFFERENTIABLE)
def test_the_reference_passes_gradcheck(name, case):
    """Number by number, or in two directions; the gradients of the fused version are compared with its gradients."""
    made = tensors(CASES[name][case], np.float64, device=here())
    inputs = {key: made.pop(key) for key, value in list(made.items()) if isinstance(value, Tensor)}
    numbers = sum(x.numel() for x in inputs.values() if x.requires_grad)
    gradcheck(
        lambda *values: REGISTRY[name].composed(**dict(zip(inputs, values, strict=True)), **made),
        list(inputs.values()),
        directions=0 if numbers <= 80 else 2,
    )


@pytest.mark.parametrize(("name", "case"), DIFFERENTIABLE)
def test_gradients_may_arrive_in_any_layout_and_backward_writes_into_nothing_else(name, case):
    """The gradient of a sum is one number broadcast to the shape, that of a transpose is strided."""
    gradients = []
    for ones in (lambda shape: np.broadcast_to(np.float64(0.5), shape), lambda shape: np.full(shape, 0.5)):
        made = tensors(CASES[name][case], np.float64)
        with random_key(7):
            y = REGISTRY[name].version_for("cpu")(**made)
        inputs = [x for x in made.values() if isinstance(x, Tensor)]
        before = [x.numpy().copy() for x in (y, *inputs)]
        y.backward(Tensor.wrap(ones(y.shape)))
        assert all((x.numpy() == then).all() for x, then in zip((y, *inputs), before, strict=True))
        gradients.append([x.grad.numpy() for x in inputs if x.requires_grad])
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


MIXED = dict.fromkeys(("linear", "linear_gelu", "rms_norm"), "rows")
MIXED |= {"conv2d": "plain", "layer_norm": "sequences", "swiglu": "sequences"}
MIXED |= {"scaled_dot_product_attention": "causal, T = S"}


@pytest.mark.emulated_by_default
@pytest.mark.parametrize("name", MIXED)
def test_mixed_types_give_float64_and_each_input_its_own_type(name):
    arguments = CASES[name][MIXED[name]]
    arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
    for types in [*itertools.product(("float32", "float64"), repeat=len(arrays))][1:-1]:
        results = []
        for version in (REGISTRY[name], REGISTRY[name].composed):
            pairs = zip(arrays.items(), types, strict=True)
            inputs = {key: Tensor(array.astype(kind), requires_grad=True) for (key, array), kind in pairs}
            results.append(version(**arguments | inputs))
            results[-1].sum().backward()
            assert [x.grad.dtype.name for x in inputs.values()] == [*types]
        assert [y.dtype for y in results] == [np.float64] * 2
        np.testing.assert_array_equal(*(y.numpy() for y in results))


@pytest.mark.emulated_by_default
def test_integers_count_as_float32():
    for version in (F.gelu.composed, F.gelu):
        y = version(Tensor([0, 1]))
        assert y.dtype == np.float32
        np.testing.assert_allclose(y.numpy(), [0, 0.841345], rtol=1e-6)


# --- the choice -----------------------------------------------------------------------------------------------


@pytest.fixture
def pair(monkeypatch):
    """An operation whose versions return their own names."""
    monkeypatch.setattr("tinygrad_lite.functional.registry.REGISTRY", {})

    def which_composed(x, y=None):
        return "composed"

    return ReferenceAndFused(which_composed, cpu=lambda x, y=None: "fused", cuda=lambda x, y=None: "fused")


def test_the_fused_version_runs_unless_switched_off(pair):
    x = Tensor([1.0])
    assert pair(x) == "fused"
    with composed():
        with composed():
            pass
        assert pair(x) == "composed"
    with pytest.raises(KeyError), composed():
        raise KeyError
    assert pair(x) == "fused"
    for on in (True, False):
        set_composed(on)
        assert pair(x) == ("composed" if on else "fused")


def test_both_versions_have_the_same_defaults():
    for operation in REGISTRY.values():
        versions = operation.composed, operation.fused.get("cpu", operation.composed)
        one, other = (inspect.signature(version).parameters for version in versions)
        assert all(one[name].default == other[name].default for name in one.keys() & other.keys()), operation.name


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*ONE_TENSOR, *UPDATES)])
def test_lists_beside_a_tensor_become_tensors(name):
    _, arguments, *_ = CASES[name].values()
    made = tensors(arguments, np.float32, device=here())
    expected = REGISTRY[name](**made)
    first, *others = (key for key, value in made.items() if isinstance(value, Tensor))
    y = REGISTRY[name](**made | {key: made[key].tolist() for key in others})
    assert (y.tolist(), y.dtype) == (expected.tolist(), np.float32)
    y.sum().backward()
    assert made[first].grad is not None


def test_numbers_beside_a_tensor_become_tensors():
    logits = Tensor([0.5, 1.0, 2.0])
    assert F.cross_entropy(logits, 2).item() == F.cross_entropy(logits, Tensor(2)).item()
    assert F.embedding(1, Tensor([[1.0], [2.0]])).tolist() == [2.0]


WITHOUT_TENSORS = [
    (lambda x: F.gelu(x, exact=True), "gelu: there is no argument 'exact'; it takes x, approximate"),
    (lambda x: F.embedding([0], [[1.0]]), "embedding: needs tensors as ids, weight; make them with Tensor(...)"),
    (lambda x: F.linear(x, None), "linear: needs tensors as x, weight; make them with Tensor(...)"),
    (lambda x: F.linear(x, "weights"), "Tensor: elements of type <U7 are not numbers"),
    (lambda x: F.logsumexp(x, exact=True), "logsumexp: there is no argument 'exact'; it takes x, axis, keepdim"),
    (lambda x: F.logsumexp(1.0), "logsumexp: needs a tensor as x; make one with Tensor(...)"),
]


@pytest.mark.parametrize(("call", "message"), WITHOUT_TENSORS)
def test_a_call_without_tensors_raises_a_clear_error(call, message):
    with pytest.raises(TypeError) as caught:
        call(Tensor([[1.0]]))
    assert str(caught.value) == message


def test_an_operation_has_the_docstring_of_its_reference_version():
    assert F.layer_norm.__doc__ == F.layer_norm.composed.__doc__
    assert "(..., C)" in F.layer_norm.__doc__
