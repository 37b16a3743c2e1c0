"""Spellings from torch and NumPy are accepted, or a sentence says what to write instead."""

import re

import numpy as np
import pytest

import tinygrad_lite as tg
from extra import torch_names
from tests.gpt.test_refusals import rows_of
from tinygrad_lite import Tensor, autograd, nn, optim
from tinygrad_lite import functional as F

# In torch's spelling, and in ours. x is (2, 3), y (3,), ids (2,) integers.
FIRST_HOUR = [
    (lambda x, y, ids: x.sum(dim=1), lambda x, y, ids: x.sum(1)),
    (lambda x, y, ids: x.amin(dim=(0, 1)), lambda x, y, ids: x.min(axis=(0, 1))),
    (lambda x, y, ids: (x > 0).all(dim=1, keepdim=True), lambda x, y, ids: (x > 0).all(1, keepdim=True)),
    (lambda x, y, ids: x.softmax(dim=0), lambda x, y, ids: x.softmax(0)),
    (lambda x, y, ids: x.flip(dims=(0,)), lambda x, y, ids: x.flip(0)),
    (lambda x, y, ids: x.transpose(dim0=0, dim1=1), lambda x, y, ids: x.transpose(0, 1)),
    (lambda x, y, ids: x.flatten(start_dim=0, end_dim=1), lambda x, y, ids: x.flatten(0, 1)),
    (lambda x, y, ids: x.split(split_size=2, dim=1)[1], lambda x, y, ids: x.split(2, 1)[1]),
    (lambda x, y, ids: x.chunk(chunks=2, dim=1)[0], lambda x, y, ids: x.chunk(2, 1)[0]),
    (lambda x, y, ids: x.gather(dim=1, index=ids.unsqueeze(1)), lambda x, y, ids: x.gather(1, ids.unsqueeze(1))),
    (lambda x, y, ids: x.clamp(min=-0.5, max=0.5), lambda x, y, ids: x.clip(-0.5, 0.5)),
    (lambda x, y, ids: x.add(y).sub(1).mul(y).div(2).neg(), lambda x, y, ids: -((x + y - 1) * y / 2)),
    (lambda x, y, ids: x.square(), lambda x, y, ids: x * x),
    (lambda x, y, ids: x.pow(2), lambda x, y, ids: x**2),
    (lambda x, y, ids: x.matmul(y), lambda x, y, ids: x @ y),
    (lambda x, y, ids: x.view(3, -1), lambda x, y, ids: x.reshape(3, -1)),
    (lambda x, y, ids: (x > 0).float(), lambda x, y, ids: (x > 0).cast("float32")),
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
        (lambda x: x.sum(axes=1), "sum: there is no argument 'axes'; it takes x, axis, keepdim"),
        (lambda x: x.sum(1, dim=1), "sum: axis is given twice"),
        (lambda x: x.relu(inplace=True), "relu: there is no argument 'inplace'; write x = ...; every operation "),
        (lambda x: nn.Dropout(0.1, inplace=True), "Dropout: there is no argument 'inplace'; write x = ...; every"),
        (lambda x: optim.SGD([x], maximize=True), "SGD: there is no argument 'maximize'; it takes params, lr, "),
        (lambda x: Tensor.zeros(2, layout=None), "zeros: there is no argument 'layout'; it takes dtype, device, "),
        (lambda x: x.max(1), "max: x.amax(axis) gives the values, x.argmax(axis) their positions"),
        (lambda x: x.min(0), "min: x.amin(axis) gives the values, x.argmin(axis) their positions"),
        (lambda x: x.max(x), "max: x.amax(axis) gives the values"),
        (lambda x: F.layer_norm(x, (3,), x[0], x[0], eps=1e-5), "layer_norm: leave out torch's"),
        (lambda x: F.rms_norm(x, (3,)), "rms_norm: leave out torch's normalized_shape"),
    ],
    AttributeError: [
        (lambda x: tg.cat, "tinygrad_lite has no 'cat': write Tensor.cat(...): it is a method of tensors"),
        (lambda x: tg.nn.ParameterDict, "tinygrad_lite.nn has no 'ParameterDict': docs/api.md lists all names"),
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


def test_a_typing_error_gets_pythons_own_message():
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'reshap'"):
        _ = Tensor([1.0]).reshap


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
