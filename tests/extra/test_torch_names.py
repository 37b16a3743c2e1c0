"""Spellings from torch and NumPy are accepted, or a sentence says what to write instead."""

import inspect
import re
import traceback

import numpy as np
import pytest

import tinygrad_lite as tg
from extra import torch_names
from tests.gpt.test_refusals import rows_of
from tinygrad_lite import Tensor, autograd, nn, optim
from tinygrad_lite import functional as F

PUBLIC = {name: getattr(Tensor, name) for name in dir(Tensor) if name[0] != "_"}

# In torch's spelling, and in ours. x is (2, 3), y (3,), ids (2,) integers.
FIRST_HOUR = [
    (lambda x, y, ids: x.sum(dim=1), lambda x, y, ids: x.sum(1)),
    (lambda x, y, ids: x.mean(dim=-1, keepdim=True), lambda x, y, ids: x.mean(-1, keepdim=True)),
    (lambda x, y, ids: x.std(dim=0), lambda x, y, ids: x.std(0)),
    (lambda x, y, ids: x.var(dim=0, correction=0), lambda x, y, ids: x.var(0, correction=0)),
    (lambda x, y, ids: x.amax(dim=0), lambda x, y, ids: x.max(axis=0)),
    (lambda x, y, ids: x.amin(dim=(0, 1)), lambda x, y, ids: x.min(axis=(0, 1))),
    (lambda x, y, ids: x.prod(dim=1), lambda x, y, ids: x.prod(1)),
    (lambda x, y, ids: (x > 0).any(dim=1), lambda x, y, ids: (x > 0).any(1)),
    (lambda x, y, ids: (x > 0).all(dim=1, keepdim=True), lambda x, y, ids: (x > 0).all(1, keepdim=True)),
    (lambda x, y, ids: x.argmax(dim=1), lambda x, y, ids: x.argmax(1)),
    (lambda x, y, ids: x.argmin(dim=1, keepdim=True), lambda x, y, ids: x.argmin(1, keepdim=True)),
    (lambda x, y, ids: x.logsumexp(dim=1), lambda x, y, ids: x.logsumexp(1)),
    (lambda x, y, ids: x.softmax(dim=0), lambda x, y, ids: x.softmax(0)),
    (lambda x, y, ids: x.log_softmax(dim=1), lambda x, y, ids: x.log_softmax(1)),
    (lambda x, y, ids: x.flip(dims=(0,)), lambda x, y, ids: x.flip(0)),
    (lambda x, y, ids: x.transpose(dim0=0, dim1=1), lambda x, y, ids: x.transpose(0, 1)),
    (lambda x, y, ids: x.flatten(start_dim=0, end_dim=1), lambda x, y, ids: x.flatten(0, 1)),
    (lambda x, y, ids: x.unsqueeze(dim=1).squeeze(dim=1), lambda x, y, ids: x.unsqueeze(1).squeeze(1)),
    (lambda x, y, ids: x.split(split_size=2, dim=1)[1], lambda x, y, ids: x.split(2, 1)[1]),
    (lambda x, y, ids: x.chunk(chunks=2, dim=1)[0], lambda x, y, ids: x.chunk(2, 1)[0]),
    (lambda x, y, ids: x.gather(dim=1, index=ids.unsqueeze(1)), lambda x, y, ids: x.gather(1, ids.unsqueeze(1))),
    (lambda x, y, ids: x.clamp(min=-0.5, max=0.5), lambda x, y, ids: x.clip(-0.5, 0.5)),
    (lambda x, y, ids: x.add(y).sub(1).mul(y).div(2).neg(), lambda x, y, ids: -((x + y - 1) * y / 2)),
    (lambda x, y, ids: x.square(), lambda x, y, ids: x * x),
    (lambda x, y, ids: x.pow(2), lambda x, y, ids: x**2),
    (lambda x, y, ids: x.matmul(y), lambda x, y, ids: x @ y),
    (lambda x, y, ids: x.view(3, -1), lambda x, y, ids: x.reshape(3, -1)),
    (lambda x, y, ids: x.repeat(2, 1), lambda x, y, ids: x.cat(x)),
    (lambda x, y, ids: x.clone(), lambda x, y, ids: x * 1),
    (lambda x, y, ids: (x > 0).float(), lambda x, y, ids: (x > 0).cast("float32")),
    (lambda x, y, ids: (x % 2 - x // 2).abs() + abs(x), lambda x, y, ids: (x % 2 - x // 2).abs() + x.abs()),
    (lambda x, y, ids: x.sign(), lambda x, y, ids: (x > 0).cast("float64") - (x < 0).cast("float64")),
]


def variables():
    rng = np.random.default_rng(0)
    arrays = {"x": rng.uniform(-2, 2, (2, 3)), "y": rng.uniform(-2, 2, 3), "ids": rng.integers(0, 3, 2)}
    return {name: Tensor(array) for name, array in arrays.items()}


@pytest.mark.parametrize(("theirs", "ours"), FIRST_HOUR)
def test_torchs_spelling_means_the_same(theirs, ours):
    one, other = theirs(**variables()), ours(**variables())
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert one.dtype == other.dtype


def test_numpys_spelling_means_the_same():
    x = Tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.sum(axis=0, keepdims=True).tolist() == [[4.0, 7.0]]
    assert x.sum(axis=1, dtype=None, out=None).tolist() == [3.0, 8.0]
    assert Tensor.full((2,), fill_value=3).tolist() == [3, 3]
    assert x.cat(x, dim=1).shape == Tensor.stack(x, x, dim=1).flatten(1).shape == (2, 4)
    assert Tensor.add(x, 1).tolist() == (x + 1).tolist()


def test_functions_accept_these_spellings_too():
    x, targets = Tensor([[1.0, 2.0], [3.0, 5.0]]), Tensor([0, 1])
    assert F.softmax(input=x, dim=0).tolist() == x.softmax(0).tolist()
    assert F.logsumexp(x, dim=0, keepdims=True).shape == (1, 2)
    assert F.cross_entropy(input=x, target=targets).item() == x.cross_entropy(targets).item()
    q, mask = Tensor.randn(1, 1, 2, 2), [[True, False], [True, True]]
    ways = ({"attn_mask": mask}, {"is_causal": True})
    found = [F.scaled_dot_product_attention(q, q, q, **way).tolist() for way in ways]
    assert found[0] == found[1]


UNKNOWN = {
    TypeError: [
        (lambda x: x.mean(dtype="float64"), "mean: there is no argument 'dtype'; write .cast(dtype) before or after"),
        (lambda x: x.var(unbiased=False), "var: there is no argument 'unbiased'; write correction=0 to divide by n, "),
        (lambda x: x.sum(axes=1), "sum: there is no argument 'axes'; it takes x, axis, keepdim"),
        (lambda x: x.sum(1, dim=1), "sum: axis is given twice"),
        (lambda x: x.sum(input=x), "sum: x is given twice"),
        (lambda x: x.relu(inplace=True), "relu: there is no argument 'inplace'; write x = ...; every operation "),
        (lambda x: nn.Dropout(0.1, inplace=True), "Dropout: there is no argument 'inplace'; write x = ...; every"),
        (lambda x: optim.SGD([x], maximize=True), "SGD: there is no argument 'maximize'; it takes params, lr, "),
        (lambda x: x.full_like(), "Tensor: elements of type object are not numbers"),
        (lambda x: x.backward(retain_graph=True), "backward: there is no argument 'retain_graph'; add the losses and "),
        (lambda x: Tensor.zeros(2, layout=None), "zeros: there is no argument 'layout'; it takes dtype, device, "),
        (lambda x: F.softmax(x, dtype="float64"), "softmax: there is no argument 'dtype'; write .cast(dtype) "),
        (lambda x: F.dropout(x, 0.1, training=True), "dropout: there is no argument 'training'; use nn.Dropout, "),
        (lambda x: F.gelu(x, inplace=True), "gelu: there is no argument 'inplace'; write x = ...; every operation "),
        (lambda x: F.max_pool2d(x, 2, ceil_mode=True), "max_pool2d: there is no argument 'ceil_mode'; pad x first, "),
        (lambda x: x.cross_entropy(Tensor([0]), weight=x), "cross_entropy: there is no argument 'weight'; there are "),
        (lambda x: x.max(1), "max: x.amax(axis) gives the values, x.argmax(axis) their positions"),
        (lambda x: x.max(dim=-1, keepdim=True), "max: x.amax(axis) gives the values, x.argmax(axis) their positions"),
        (lambda x: x.min(0), "min: x.amin(axis) gives the values, x.argmin(axis) their positions"),
        (lambda x: x.max(x), "max: x.amax(axis) gives the values"),
        (lambda x: F.layer_norm(x, (3,), x[0], x[0], eps=1e-5), "layer_norm: leave out torch's"),
        (lambda x: F.layer_norm(x, (3,)), "layer_norm: leave out torch's normalized_shape"),
        (lambda x: F.rms_norm(x, (3,)), "rms_norm: leave out torch's normalized_shape"),
    ],
    AttributeError: [
        (lambda x: tg.cat, "tinygrad_lite has no 'cat': write Tensor.cat(...): it is a method of tensors"),
        (lambda x: tg.nn.ParameterDict, "tinygrad_lite.nn has no 'ParameterDict': docs/api.md lists all names"),
        (lambda x: F.relu, "tinygrad_lite.functional has no 'relu': write Tensor.relu(...): it is a method of tensors"),
        (lambda x: F.nothing, "tinygrad_lite.functional has no 'nothing'"),
        (lambda x: nn.Linear(2, 3).register_forward_hook, "a Linear has no 'register_forward_hook': write `with nn"),
        (lambda x: x.cumprod, "a Tensor has no 'cumprod': np.cumprod(x.numpy()) has no gradient; docs/api.md lists "),
        (lambda x: x.arctan_(), "a Tensor has no 'arctan_': results are new tensors"),
    ],
}


@pytest.mark.parametrize(("error", "call", "message"), rows_of(UNKNOWN))
def test_an_unknown_argument_or_name_in_a_module_is_refused_with_an_alternative(error, call, message):
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call(Tensor([[1.0, 2.0]], requires_grad=True))


TABLES = [
    (Tensor([1.0]), torch_names.METHODS_INSTEAD),
    (nn.Linear(2, 3), torch_names.MODULES_INSTEAD),
    (optim.SGD([Tensor([1.0], requires_grad=True)]), torch_names.OPTIMIZERS_INSTEAD),
    *((module, torch_names.NAMES_INSTEAD | torch_names.METHODS_INSTEAD) for module in (tg, autograd, F, nn, optim)),
]


@pytest.mark.parametrize(("owner", "table"), TABLES)
def test_every_name_of_a_table_is_answered_by_what_the_table_says(owner, table):
    answers = {name: instead for names, instead in table.items() for name in names.split() if not hasattr(owner, name)}
    assert len(answers) > len(table) / 2
    for name, instead in answers.items():
        with pytest.raises(AttributeError, match=re.escape(f" has no {name!r}: write {instead}") + "$"):
            getattr(owner, name)


def test_a_class_answers_as_its_tensors_do():
    x = Tensor([1.0])
    assert not hasattr(x, "size")
    with pytest.raises(AttributeError, match=r"'size': write x\.shape for the sizes, x\.numel\(\) for the number"):
        Tensor.size(x)
    assert [Tensor.float(Tensor([2])).tolist(), Tensor.square(x + 2).tolist()] == [[2.0], [9.0]]


WRONG = [lambda x: x.sum(dim=5), lambda x: x.view(5), lambda x: x.add("a")]
WRONG += [lambda x: Tensor.view(x, 5), lambda x: Tensor.float("a")]


@pytest.mark.parametrize("call", WRONG)
def test_what_is_accepted_has_no_frame_of_its_own_in_a_traceback(call):
    with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
        call(Tensor([[1.0, 2.0]]))
    assert torch_names.__file__ not in {frame.filename for frame in traceback.extract_tb(caught.tb)}


def test_modules_suggest_alternatives_too():
    class Net(tg.nn.Module):
        def apply(self):
            return "its own"

    with pytest.raises(AttributeError, match=r"^a Net has no 'cuda': write module.to\(device\), as in module.to\("):
        Net().cuda()
    assert Net().apply() == "its own"
    assert not {name for names in torch_names.MODULES_INSTEAD for name in names.split()} & {*dir(tg.nn.Module)}


def test_a_typing_error_gets_pythons_own_message():
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'reshap'"):
        _ = Tensor([1.0]).reshap


def test_the_tables_name_nothing_that_exists():
    names = [name for names in torch_names.METHODS_INSTEAD for name in names.split()]
    assert len(names) == len(set(names))
    assert not {*names, *torch_names.ACCEPTED_METHODS} & PUBLIC.keys()
    assert not {*names} & {*torch_names.ACCEPTED_METHODS}
    arguments = {name for value in PUBLIC.values() if callable(value) for name in inspect.signature(value).parameters}
    arguments |= {name for chapter in (F.cross_entropy, F.dropout) for name in inspect.signature(chapter).parameters}
    assert {here for names in torch_names.ACCEPTED_ARGUMENTS.values() for here in names.split()} <= arguments | {"axes"}
    assert not {*torch_names.ARGUMENTS_INSTEAD} & {*torch_names.ACCEPTED_ARGUMENTS}


@pytest.mark.torch
def test_every_public_name_of_torchs_tensor_is_answered(torch):
    x = Tensor([1.0])
    names = [name for name in dir(torch.Tensor) if name[0] != "_" and not hasattr(x, name)]
    for name in names:
        with pytest.raises(AttributeError, match=f"^a Tensor has no {name!r}: "):
            getattr(x, name)
    for module, theirs in ((tg.nn, torch.nn), (tg.optim, torch.optim), (F, torch.nn.functional)):
        for name in [name for name in dir(theirs) if name[0] != "_" and not hasattr(module, name)]:
            with pytest.raises(AttributeError, match=f"^{module.__name__} has no {name!r}: "):
                getattr(module, name)
