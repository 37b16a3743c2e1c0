"""Products of matrices and linear maps on a GPU: every layout without needless copies, several maps in one product,
rows at a distance for cuBLAS, and bfloat16 copies of weights."""

import itertools

import numpy as np
import pytest

from tests.tinygrad_lite.cuda.tiny_training import batch_of, tiny_gpt, train
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import linear
from tinygrad_lite.cuda.gemm import gemm
from tinygrad_lite.debug.anomaly import detect_anomaly
from tinygrad_lite.device import get_device
from tinygrad_lite.nn import Linear, Parameter, linear_maps, recorded
from tinygrad_lite.optim import SGD, AdamW
from tinygrad_lite.precision import bfloat16, precision

rng = np.random.default_rng(20)


@pytest.fixture
def place(cuda):
    return get_device(cuda)


def on(place, *shape, dtype="float64"):
    return place.from_host(rng.standard_normal(shape).astype(dtype))


def assert_right(place, a, b, **tolerance):
    product = place.to_host(gemm(a, b))
    np.testing.assert_allclose(product, place.to_host(a) @ place.to_host(b), **tolerance)


# Layouts of a matrix (..., 4, 6): contiguous rows, contiguous columns, a part of a larger one.
LAYOUTS = {
    "rows": lambda place, *front: on(place, *front, 4, 6),
    "columns": lambda place, *front: on(place, *front, 6, 4).swapaxes(-1, -2),
    "some columns of more": lambda place, *front: on(place, *front, 4, 9)[..., 2:8],
    "some rows of more": lambda place, *front: on(place, *front, 9, 6)[..., 3:7, :],
    "every second column": lambda place, *front: on(place, *front, 4, 12)[..., ::2],
    "one row, stretched": lambda place, *front: place.xp.broadcast_to(on(place, *front, 1, 6), (*front, 4, 6)),
    "backwards": lambda place, *front: on(place, *front, 4, 6)[..., ::-1, :],
}


@pytest.mark.parametrize("front", [(), (2, 3)])
@pytest.mark.parametrize("first", LAYOUTS)
def test_every_layout_gives_the_product(place, first, front):
    for second, lay_out in LAYOUTS.items():
        a, b = LAYOUTS[first](place, *front), lay_out(place, *front).swapaxes(-1, -2)
        assert_right(place, a, b, rtol=1e-12, atol=1e-12, err_msg=second)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("k", [1, 4])
def test_single_rows_and_columns_give_the_product(place, m, n, k):
    for a, b in itertools.product([on(place, m, k), on(place, k, m).T], [on(place, k, n), on(place, n, k).T]):
        assert_right(place, a, b, rtol=1e-12, atol=1e-13)


def test_one_matrix_may_serve_a_whole_batch(place):
    a, b = on(place, 3, 4, 5), on(place, 5, 2)
    assert_right(place, a, place.xp.broadcast_to(b, (3, 5, 2)), rtol=1e-12)


def test_a_scaled_product_can_be_added_to_part_of_a_larger_array(place):
    """Or replace that part, whose old contents then have no effect."""
    a, b, large = on(place, 4, 5), on(place, 5, 3), on(place, 6, 7)
    before, product = place.to_host(large).copy(), place.to_host(a) @ place.to_host(b)
    gemm(a, b, out=large[1:5, 2:5], scale=0.5, add=True)
    expected = before.copy()
    expected[1:5, 2:5] += 0.5 * product
    np.testing.assert_allclose(place.to_host(large), expected, rtol=1e-12)
    large[1:5, 2:5] = np.nan
    gemm(a, b, out=large[1:5, 2:5])
    expected[1:5, 2:5] = product
    np.testing.assert_allclose(place.to_host(large), expected, rtol=1e-12)


def test_a_result_without_contiguous_rows_is_rejected(place):
    for out in (place.xp.empty((4, 2)).T, place.xp.empty((2, 8))[:, ::2]):
        with pytest.raises(ValueError, match="rows of out"):
            gemm(on(place, 2, 3), on(place, 3, 4), out=out)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_empty_matrices_give_zeros(place, m, n, k):
    out = place.to_host(gemm(on(place, m, k), on(place, k, n)))
    assert out.shape == (m, n)
    assert (out == 0).all()


@pytest.mark.parametrize(
    ("mode", "low", "high"), [("float32", 0, 1e-6), ("tf32", 1e-5, 1e-3), ("bfloat16", 1e-3, 1e-2)]
)
def test_each_precision_has_its_error(place, mode, low, high):
    """Of matrices so large that cuBLAS does not take a kernel without tensor cores, which would be more exact."""
    a, b = on(place, 256, 256, dtype="float32"), on(place, 256, 256, dtype="float32")
    exact = place.to_host(a).astype(np.float64) @ place.to_host(b)
    with precision(mode):
        out = gemm(a, b, dtype="float32")
    assert out.dtype == np.float32
    error = np.linalg.norm(place.to_host(out) - exact) / np.linalg.norm(exact)
    assert low <= error < high


@pytest.mark.parametrize("mode", ["tf32", "bfloat16"])
def test_float64_is_always_exact(place, mode):
    with precision(mode):
        assert_right(place, on(place, 4, 5), on(place, 5, 6), rtol=1e-13)


# --- linear maps ----------------------------------------------------------------------------------------------


@pytest.fixture
def products(monkeypatch):
    """The shapes (M, N) of all products of linear maps."""
    shapes, gemm = [], linear.gemm

    def noted(a, b, *args, **options):
        shapes.append((a.shape[0], b.shape[1]))
        return gemm(a, b, *args, **options)

    monkeypatch.setattr(linear, "gemm", noted)
    return shapes


def maps_on(device, bias=True, together=True):
    """Linear maps of 8 inputs with the same weights in every call; `together` in an optimizer's memory."""
    made, numbers = [Linear(8, width, bias) for width in (6, 4, 4)], np.random.default_rng(1)
    for one in made:
        for parameter in one.parameters():
            parameter.data[...] = numbers.standard_normal(parameter.shape)
        one.to(device)
    if together:
        named = [(f"{i}.{name}", p) for i, one in enumerate(made) for name, p in one.named_parameters()]
        named.sort(key=lambda pair: -pair[1].ndim)  # matrices come first
        made[0].weight.optimizer = AdamW(named, lr=0.1)  # it must live, as it has the memory
    return made


def results(x, maps):
    """The results, and all gradients of a loss that needs them all."""
    x = Tensor(x, device=maps[0].weight.device, requires_grad=True)
    ys = linear_maps(x, maps)
    sum(((y.cast(np.float32) * (i + 1.0)) ** 2).sum() for i, y in enumerate(ys)).backward()
    return [*ys, x.grad, *(p.grad for one in maps for p in one.parameters())]


def assert_close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        one, other = one.numpy().astype(np.float64), other.numpy().astype(np.float64)
        assert np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other)


@pytest.mark.parametrize("mode", ["float32", "bfloat16"])
@pytest.mark.parametrize(("after", "sizes"), [(120, [(6, 64), (6, 8), (50, 8)]), (0, [(6, 50), (6, 8), (50, 8)])])
def test_an_odd_number_of_results_is_padded_if_rows_follow_the_matrix(cuda, mode, after, sizes, products):
    """The results are those of the matrix alone, whatever follows it; the loss overwrites the logits.

    For cuBLAS their rows begin at multiples of 16 bytes.
    """
    values, x, targets = rng.standard_normal((50, 8)), rng.standard_normal((2, 3, 8)), rng.integers(0, 50, (2, 3))
    outcomes = []
    for device in ("cpu", cuda):
        weight, behind = Parameter(values.astype("float32")), Parameter(np.full(after, 1e3, np.float32))
        weight.data, behind.data = (Tensor(p.numpy(), device=device).data for p in (weight, behind))
        optimizer = AdamW([("weight", weight), ("behind", behind)])
        given = Tensor(x.astype("float32"), device=device, requires_grad=True)
        with precision(mode if device == cuda else "float32"):
            if device == cuda:
                optimizer.memory.rounded = linear.copy_of(optimizer.memory)
            logits = F.linear(given, weight)
            assert logits.shape == (2, 3, 50)
            assert device == "cpu" or logits.data.strides[1] % 16 == 0
            F.cross_entropy(logits, Tensor(targets, device=device), overwrite=True).backward()
        outcomes.append((given.grad, weight.grad))
    assert products == sizes
    assert_close(outcomes[1], outcomes[0], 1e-6 if mode == "float32" else 2e-2)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_several_maps_of_one_input_equal_single_ones(cuda, together, bias):
    """Also to an observer, which sees every gradient by itself."""
    x = rng.standard_normal((2, 3, 8)).astype("float32")
    expected = results(x, maps_on("cpu", bias=bias))
    for how, tolerance in ((precision("float32"), 1e-6), (precision("bfloat16"), 2e-2), (detect_anomaly(), 1e-6)):
        maps = maps_on(cuda, bias=bias, together=together)
        with how:
            found = results(x, maps)
        assert found[0].dtype == (np.float32 if tolerance == 1e-6 else bfloat16())
        assert_close(found, expected, tolerance)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("left_out", [0, 2])
def test_a_result_that_nothing_uses_and_a_frozen_weight_have_no_gradient(cuda, left_out, frozen):
    x, found = rng.standard_normal((5, 8)).astype("float32"), {}
    for device in ("cpu", cuda):
        maps = maps_on(device)
        given = Tensor(x, device=device, requires_grad=True)
        maps[left_out].weight.requires_grad_(not frozen)
        ys = linear_maps(given, maps)
        sum(((y * (i + 1.0)) ** 2).sum() for i, y in enumerate(ys) if frozen or i != left_out).backward()
        found[device] = [given.grad, *(p.grad for i, one in enumerate(maps) if i != left_out for p in one.parameters())]
        if frozen:
            assert maps[left_out].weight.grad is None
        elif device == cuda:
            assert not maps[left_out].weight.grad.numpy().any()
    assert_close(found[cuda], found["cpu"], 1e-6)


def test_recorded_maps_and_adapters_are_called_one_by_one(cuda, products):
    maps = maps_on(cuda)
    x = Tensor(np.ones((5, 8), "float32"), device=cuda)
    with recorded(maps[0], Linear) as calls:
        linear_maps(x, maps)
    assert len(calls) == 1
    assert products == [(5, 6), (5, 4), (5, 4)]


# --- bfloat16 copies ------------------------------------------------------------------------------------------


def copies_are_right(model):
    """Whether the copies of all matrices are their values rounded."""
    values = [(p.xp.asnumpy(linear.in_precision(p)), p.numpy().astype(bfloat16())) for p in model.parameters()]
    return all((copy == rounded).all() for copy, rounded in values)


def update(model, optimizer, step=0):
    """One update; the copies that it leaves."""
    model.loss(batch_of(model, "cuda", step)).backward()
    optimizer.step()
    return [parameter._copy for parameter in model.parameters()]


@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_copies_follow_all_that_writes_into_the_parameters(cuda, kind):
    model = tiny_gpt(cuda)
    optimizer = kind(model.named_parameters(), lr=0.1)
    with precision("bfloat16"):
        for step in range(2):
            optimizer.zero_grad()
            held = update(model, optimizer, step)
            assert copies_are_right(model)
            assert [parameter._copy for parameter in model.parameters()] == held  # none had to be made again
        model.load_state_dict({name: array + 1 for name, array in model.state_dict().items()})
        assert copies_are_right(model)
        model.final_norm.weight.data = model.final_norm.weight.data + 1  # another array
        assert copies_are_right(model)
        optimizer.zero_grad()
        model.blocks[0].mlp.up.weight.requires_grad_(False)  # which this update skips
        update(model, optimizer)
        assert copies_are_right(model)


def test_a_guarded_broken_step_changes_no_copy(cuda):
    model = tiny_gpt(cuda)
    with precision("bfloat16"):
        train(model, cuda, 2)
        optimizer = AdamW(model.named_parameters(), lr=0.1)
        optimizer.guard = Tensor(np.array([1.0, 0.0, 0.0, 0.0]), device=cuda)  # step 0 was broken
        before = model.state_dict()
        update(model, optimizer)
        assert all((array == before[name]).all() for name, array in model.state_dict().items())
        assert copies_are_right(model)
