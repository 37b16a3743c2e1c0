"""Attention on a GPU, with and without an array of weights: what the comparison of versions does not cover."""

import numpy as np
import pytest

from tests.tinygrad_lite.cuda import attention_in_numpy as formula
from tests.tinygrad_lite.cuda.attention_in_numpy import assert_right, inputs, leaf, on_device, outcome, relative_error
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import attention as chapter
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import precision

rng = np.random.default_rng(5)

# Rounding errors are 2^-53, 2^-24 and 2^-9 of a number; scores and weights are rounded too, so some of them add up.
TOLERANCE = {"float64": 1e-14, "float32": 2e-6, "bfloat16": 8e-3}


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize(("t", "s"), [(3, 9), (8, 6), (7, 1), (40, 40)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_follows_its_formulas(cuda, kind, t, s, is_causal):
    arrays = inputs(2, 3, t, s, 6, kind, of_heads=True)
    mask = rng.random((2, 1, t, s)) < 0.7
    assert_right(arrays, cuda, TOLERANCE[kind], is_causal=is_causal)
    assert_right(arrays, cuda, TOLERANCE[kind], is_causal=is_causal, mask=mask, dropout_p=0.3)


@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("queries", [1, 3])
def test_blocks_of_queries_give_the_same_results(cuda, kind, queries, monkeypatch):
    monkeypatch.setattr(chapter, "QUERIES", queries)
    for t, s in ((8, 9), (7, 12), (9, 4)):
        arrays = inputs(2, 2, t, s, 8, kind)
        mask = rng.random((2, 1, 1, s)) < 0.8
        assert_right(arrays, cuda, TOLERANCE[kind], is_causal=True, mask=mask, dropout_p=0.2)


@pytest.mark.parametrize(("t", "s"), [(0, 4), (3, 0), (0, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty_arrays_give_zeros(cuda, t, s, is_causal):
    arrays = inputs(2, 2, t, s, 4, "float32")
    for array in outcome(F.scaled_dot_product_attention, arrays, cuda, is_causal=is_causal, dropout_p=0.5).values():
        assert not array.any()


def test_scores_of_ten_thousand_do_not_overflow(cuda):
    arrays = inputs(1, 2, 4, 4, 4, "float64")
    arrays.query *= 1e4
    assert_right(arrays, cuda, 1e-12)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_gradient_may_have_any_layout(cuda, kind):
    arrays = inputs(2, 2, 5, 5, 4, kind)
    x = [leaf(array, cuda) for array in (arrays.query, arrays.key, arrays.value)]
    y = F.scaled_dot_product_attention(*(tensor.cast(arrays.dy.dtype) for tensor in x), is_causal=True)
    one = get_device(cuda).xp.ones((), y.dtype)
    y.backward(Tensor.wrap(get_device(cuda).xp.broadcast_to(one, y.shape)))
    arrays.dy = np.ones_like(arrays.dy)
    expected = formula.attention(**vars(arrays), is_causal=True)
    for name, tensor in zip(("query", "key", "value"), x, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), expected[name], atol=1e-5 if kind == "float32" else 0.05)


@pytest.mark.parametrize("name", ["tf32", "bfloat16"])
def test_other_precisions_have_their_errors(cuda, name):
    arrays = inputs(2, 2, 12, 12, 8, "float32", of_heads=True)
    expected = formula.attention(**vars(arrays), is_causal=True)
    with precision(name):
        found = outcome(F.scaled_dot_product_attention, arrays, cuda, is_causal=True)
    assert found["result"].dtype.name == ("bfloat16" if name == "bfloat16" else "float32")
    for key, array in expected.items():
        assert key == "result" or found[key].dtype == np.float32
        assert relative_error(found[key], array) < (1e-2 if name == "bfloat16" else 2e-3)


# --- by any version ---------------------------------------------------------------------------------------------------

# flash_attention.py has kernels for bfloat16 and a width of 32. Over all masks of 5 keys, the error is at most 5.1e-3.
VERSIONS = {"float32": 2e-6, "flash": 8e-3}


@pytest.fixture(params=VERSIONS)
def version(request, cuda, monkeypatch):
    """In blocks, or without an array of weights."""
    if request.param == "flash":
        monkeypatch.setattr(chapter, "attention_by_blocks", None)
    return request.param


def inputs_of(version, *shape):
    return inputs(*shape, *((32, "bfloat16") if version == "flash" else (4, version)))


@pytest.mark.parametrize("shape", [(), (5,), (2, 1, 1, 5), (1, 3, 6, 1)])
def test_masks_may_broadcast(cuda, version, shape):
    if version != "flash" or shape[-2:-1] in ((), (1,)):
        mask = np.array(rng.random(shape) < 0.6)
        assert_right(inputs_of(version, 2, 3, 6, 5), cuda, VERSIONS[version], mask=mask)


def test_queries_that_may_attend_to_no_key_get_zeros(cuda, version):
    arrays = inputs_of(version, 2, 2, 9, 6)
    mask = np.array([True, False])[:, None, None, None]  # no query of the second sequence may attend
    found = outcome(F.scaled_dot_product_attention, arrays, cuda, mask=mask, is_causal=True)
    assert all(not array[1].any() for array in found.values())
    assert not found["result"][0, :, :3].any()  # they come before the first key
    assert not found["query"][0, :, :3].any()
    assert all(np.isfinite(array.astype(np.float64)).all() for array in found.values())


# --- flash attention, on the matrix units, against the formulas in float64 ------------------------------------

# Weights, dS and the results are rounded to bfloat16: each by at most 2^-9 = 0.002 of a number, by 0.001 on average.
OF_FLASH = 4e-3


@pytest.fixture
def only_flash(monkeypatch):
    """Make any other version fail."""
    monkeypatch.setattr(chapter, "attention_by_blocks", None)


# In (40, 73), the last query of the second warp sees only the first key of its last tile. With one key, the weight is 1
# for any score, so queries and keys get no gradient.
SIZES = [(t, s, 32) for t, s in ((1, 70), (70, 1), (64, 64), (65, 127), (130, 70), (40, 73))]


@pytest.mark.parametrize(("t", "s", "width"), [*SIZES, (70, 90, 64), (130, 70, 64), (70, 90, 128)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_flash_attention_follows_its_formulas(cuda, only_flash, t, s, width, is_causal):
    arrays = inputs(1, 2, t, s, width, "bfloat16", of_heads=True)
    assert_right(arrays, cuda, OF_FLASH, is_causal=is_causal)


# Four keys share random numbers, if S is a multiple of 4.
@pytest.mark.parametrize(("t", "s", "p"), [(67, 72, 0.3), (67, 69, 0.3), (130, 69, 0.0)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_masks_and_dropout_follow_the_formulas(cuda, only_flash, s, t, p, is_causal):
    mask = np.arange(s) < np.array([30, s])[:, None, None, None]
    mask[:, ..., 3] = False
    arrays = inputs(2, 2, t, s, 32, "bfloat16", of_heads=True)
    assert_right(arrays, cuda, OF_FLASH, is_causal=is_causal, mask=mask, dropout_p=p)


@pytest.mark.parametrize(("width", "shape"), [(48, (5,)), (32, (3, 5)), (32, (2, 1, 1, 5))])
def test_other_widths_and_masks_are_computed_in_blocks(cuda, width, shape, monkeypatch):
    taken = []
    by_blocks = chapter.attention_by_blocks
    monkeypatch.setattr(chapter, "attention_by_blocks", lambda *args: taken.append(1) or by_blocks(*args))
    assert_right(inputs(2, 2, 3, 5, width, "bfloat16"), cuda, 1e-2, mask=rng.random(shape) < 0.7)
    assert bool(taken) == (shape != (2, 1, 1, 5))


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_a_scale_of_zero_or_below_is_computed_in_blocks(cuda, scale):
    """There, the largest product of query and key is not the largest score."""
    arrays = inputs(1, 2, 5, 9, 32, "bfloat16")
    assert_right(arrays, cuda, TOLERANCE["bfloat16"], is_causal=True, scale=scale)


def test_one_query_can_use_a_cache_of_keys(cuda, only_flash):
    """A cache has more room than it uses, and stores keys and values side by side."""
    arrays = inputs(2, 2, 1, 7, 32, "bfloat16")
    room = np.zeros((2, 2, 2, 10, 32), arrays.key.dtype)
    room[:, 0, :, :7], room[:, 1, :, :7] = arrays.key, arrays.value
    both = on_device(room, cuda).data
    key, value = (Tensor.wrap(both[:, i, :, :7]) for i in (0, 1))
    y = F.scaled_dot_product_attention(on_device(arrays.query, cuda), key, value, is_causal=True)
    assert relative_error(y.numpy(), formula.attention(**vars(arrays))["result"]) < OF_FLASH


def test_rows_at_any_address_are_copied(cuda, only_flash):
    arrays = inputs(1, 2, 5, 5, 32, "bfloat16")
    for name, array in vars(arrays).items():
        wide = np.zeros((*array.shape[:-1], 33), array.dtype)
        wide[..., 1:] = array
        setattr(arrays, name, wide)
    x = [Tensor.wrap(on_device(array, cuda).data[..., 1:]) for array in vars(arrays).values()]
    y = F.scaled_dot_product_attention(*x[:3])
    expected = formula.attention(*(array[..., 1:] for array in vars(arrays).values()))["result"]
    assert relative_error(y.numpy(), expected) < OF_FLASH


def test_large_scores_keep_their_accuracy(cuda, only_flash):
    """Scores of several hundred: the weights are 0 and 1 for most queries."""
    arrays = inputs(1, 1, 70, 70, 32, "bfloat16")
    arrays.query *= 64
    expected = formula.attention(**vars(arrays), is_causal=True)
    found = outcome(F.scaled_dot_product_attention, arrays, cuda, is_causal=True)
    for name in ("result", "value"):
        assert relative_error(found[name], expected[name]) < OF_FLASH
    # dP - rowsum(dO * O) is near 0 for the key with weight 1: the difference of two numbers of about 6,
    # the second computed from O, which is rounded to bfloat16. So it is less accurate.
    for name in ("query", "key"):
        assert relative_error(found[name], expected[name]) < 5 * OF_FLASH


@pytest.mark.parametrize(("t", "p", "order"), [(70, 0.1, "1"), (150, 0.0, "2")])
def test_the_order_of_threads_does_not_matter(cuda, only_flash, t, p, order, monkeypatch):
    """The emulator runs the threads in a different order; a missing barrier then changes the result."""
    arrays = inputs(1, 1, t, 150, 32, "bfloat16")
    expected = outcome(F.scaled_dot_product_attention, arrays, cuda, is_causal=True, dropout_p=p)
    monkeypatch.setenv("CUDA_ON_CPU_ORDER", order)
    found = outcome(F.scaled_dot_product_attention, arrays, cuda, is_causal=True, dropout_p=p)
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes()
