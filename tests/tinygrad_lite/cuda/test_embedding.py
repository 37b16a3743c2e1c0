"""Embeddings on a GPU: rows are copied, and gradients summed over runs of equal tokens."""

from contextlib import nullcontext

import numpy as np
import pytest

from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import embedding
from tinygrad_lite.cuda.embedding import SEGMENT
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.precision import bfloat16

rng = np.random.default_rng(6)


def gradient(cuda, ids, dy, rows):
    weight = Tensor.zeros(rows, dy.shape[-1], device=cuda).requires_grad_()
    F.embedding(Tensor(ids, device=cuda), weight).backward(Tensor(dy, device=cuda))
    return weight.grad.numpy()


def texts():
    """Tokens whose runs, once sorted, begin and end at, before and after the borders of segments."""
    for lengths in ([1], [SEGMENT], [SEGMENT, SEGMENT], [SEGMENT - 1, 1], [SEGMENT - 1, 2], [SEGMENT + 1, SEGMENT - 1]):
        yield np.repeat(np.arange(len(lengths)), lengths)
    yield np.repeat([0, 1, 2, 3, 4, 6], [1, 3 * SEGMENT, SEGMENT - 2, 1, 2 * SEGMENT + 1, 1])
    yield np.full(40 * SEGMENT + 5, 3)  # a single token
    yield np.arange(7).repeat(SEGMENT // 8)
    yield rng.integers(0, 7, 1000)
    yield np.where(rng.random(2000) < 0.6, 2, rng.integers(0, 7, 2000))


@pytest.mark.parametrize("width", [1, 6, 132])
def test_gradients_of_runs_of_every_length_are_exact(cuda, width):
    """The numbers in dy are small integers, so sums in any order are exact."""
    for number, ids in enumerate(texts()):
        ids = rng.permutation(ids)
        dy = rng.integers(-8, 9, (len(ids), width)).astype(np.float32)
        expected = np.zeros((7, width), np.float32)
        np.add.at(expected, ids, dy)
        np.testing.assert_array_equal(gradient(cuda, ids, dy, 7), expected, err_msg=f"text {number}")


@pytest.mark.parametrize(("outside", "repeated"), [(-1, 3 * SEGMENT), (5, 3 * SEGMENT), (2**40, 1)])
def test_a_token_outside_the_table_gives_nan_and_no_gradient(cuda, outside, repeated):
    """It is not checked, so there is no message: its row is NaN, and it gets no gradient."""
    ids = np.array([4, 0, *[outside] * repeated, 4])
    weight = Tensor(np.arange(20.0, dtype=np.float32).reshape(5, 4), device=cuda, requires_grad=True)
    y = F.embedding(Tensor(ids, device=cuda), weight)
    known = ids != outside
    assert np.isnan(y.numpy()[~known]).all()
    np.testing.assert_array_equal(y.numpy()[known], weight.numpy()[[4, 0, 4]])
    y.backward(Tensor(np.ones((len(ids), 4), np.float32), device=cuda))
    np.testing.assert_array_equal(weight.grad.numpy(), np.repeat([[1], [0], [0], [0], [2]], 4, axis=1))


def test_the_caller_may_write_into_the_tokens(cuda):
    weight, ids = Tensor.zeros(3, 2, device=cuda).requires_grad_(), Tensor([0, 1], device=cuda)
    y = F.embedding(ids, weight)
    ids[0] = 2
    y.sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]


# --- indices: the same sums, also without the operation `embedding` -------------------------------------------------


@pytest.fixture
def no_atomic_additions(cuda, monkeypatch):
    """CuPy's add.at adds floats for the same position in an order that varies; here it is refused."""

    def refuse(target, *_):
        raise AssertionError(f"add.at on {target.dtype}")

    def add(*args, **options):  # with which CuPy computes x + y
        return plain(*args, **options)

    plain, add.at = get_device(cuda).xp.add, refuse
    monkeypatch.setattr(get_device(cuda).xp, "add", add)


INDICES = [
    np.array([3, 0, -1, 3, 3], np.int32),
    np.arange(6).reshape(2, 3).T % 5,
    (np.array([0, 0, -1]), np.array([2, 2, -1])),
    (np.array([[0], [4]]), np.array([[1, 1, 3]])),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("index", INDICES, ids=range(4))
def test_gradients_of_integer_indices_have_a_fixed_order(cuda, no_atomic_additions, index, dtype):
    """Negative numbers count from the end, numbers may repeat, and the gradient may have any strides."""
    values = rng.integers(-8, 9, (5, 4, 3)).astype(np.float32)
    x = Tensor(values, device=cuda, requires_grad=True)
    y = (x.cast(bfloat16()) if dtype == "bfloat16" else x)[index]
    np.testing.assert_array_equal(y.cast(np.float32).numpy(), values[index])
    dy = rng.integers(-8, 9, y.shape[::-1]).astype(np.float32)
    y.backward(Tensor(dy, device=cuda).cast(y.dtype).T)
    expected = np.zeros(x.shape)
    np.add.at(expected, index, dy.T)
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_very_wide_rows_are_summed_in_pieces(cuda, monkeypatch):
    ids, dy = rng.integers(0, 5, 90), rng.integers(-8, 9, (90, 70)).astype(np.float32)
    whole = gradient(cuda, ids, dy, 5)
    for most in (1, 32, 69, 70):
        monkeypatch.setattr(embedding, "MOST_COLUMNS", most)
        assert gradient(cuda, ids, dy, 5).tobytes() == whole.tobytes()


@pytest.mark.parametrize("make", [tiny_gpt, tiny_seq2seq])
@pytest.mark.parametrize("is_composed", [False, True])
def test_models_train_without_atomic_additions(cuda, no_atomic_additions, make, is_composed):
    with composed() if is_composed else nullcontext():
        assert np.isfinite(train(make(cuda), cuda, 1)).all()
