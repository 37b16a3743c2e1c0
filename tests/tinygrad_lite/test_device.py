"""Devices by name, numbers that can be drawn again, and adding at repeated positions."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygrad_lite import manual_seed
from tinygrad_lite.device import (
    DeviceError,
    add_rows,
    device_of,
    get_device,
    keyed_rng,
    next_bits,
    next_rng,
    random_key,
    scatter_add,
    xp_of,
)
from tinygrad_lite.errors import UserError

# --- devices ----------------------------------------------------------------------------------------------------


def test_the_data_decides():
    cpu = get_device("cpu")
    assert device_of(np.ones(2)) is cpu
    assert xp_of(np.ones(2)) is np
    assert cpu.xp is np
    assert cpu.synchronize() is None
    array = np.ones(2)
    assert cpu.from_host(array) is cpu.to_host(array) is array
    with pytest.raises(TypeError, match=r"^a list is not an array of a known device \(ndarray"):
        device_of([1, 2])


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(DeviceError) as caught:
        get_device("gpu")
    assert str(caught.value).startswith("there is no device 'gpu': use one of cpu")
    assert str(caught.value).endswith("auto")
    assert isinstance(caught.value, UserError)


def test_importing_the_package_does_not_import_cupy():
    code = "import sys, tinygrad_lite, gpt; sys.exit('cupy' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


# --- random numbers ---------------------------------------------------------------------------------------------


def test_keyed_numbers_are_the_same_today_as_ever():
    """Frozen: runs that are resumed, and the README's numbers, depend on them."""
    assert keyed_rng(1337, "batch", 0).bit_generator.random_raw(2).tolist() == [
        13219109327969504389,
        7290099089512269799,
    ]
    assert keyed_rng(1337, "batch", 5).integers(0, 1000, 4).tolist() == [345, 558, 205, 369]
    assert keyed_rng(0, "init", 1, 2).random() == 0.32416590040941307
    with random_key(1, 2, 3):
        assert next_rng("dropout").bit_generator.random_raw() == 1918683291350188554
        assert next_rng("dropout").bit_generator.random_raw() == 2896475222020387710


def test_each_part_of_the_key_matters():
    def draw(*key):
        return keyed_rng(*key).random()

    keys = [
        (1, "a", 5),
        (2, "a", 5),
        (1, "b", 5),
        (1, "a", 6),
        (1, "a", 5, 1),
        (1, "a", 1, 5),
        (1, "a"),
        (1, "a", 0),
        (1, "a", 5, 0),
    ]
    assert len({draw(*key) for key in keys}) == len(keys)
    assert [draw(*key) for key in keys] == [draw(*key) for key in keys]


def test_random_key_counts_its_draws_and_gives_the_place_back():
    manual_seed(3)
    first, second, third = (next_rng("x").random() for _ in range(3))
    assert len({first, second, third}) == 3
    manual_seed(3)
    assert next_rng("x").random() == first
    with random_key(9, 4):
        inside = next_rng("x").random()
        with random_key(9, 5):
            assert next_rng("x").random() != inside
        after = next_rng("x").random()
    assert next_rng("x").random() == second
    with random_key(9, 4):
        assert [next_rng("x").random(), next_rng("x").random()] == [inside, after]
    with pytest.raises(KeyError), random_key(9, 4):
        raise KeyError
    assert next_rng("x").random() == third


def test_bits_are_those_of_their_place():
    with random_key(9, 4):
        first, second = next_bits("x"), next_bits("x")
    with random_key(9, 4):
        next_rng("y")
        assert next_bits("x") == second  # draws are counted together
    with random_key(9, 4):
        assert next_bits("x") == first != next_bits("x")
    found = set()
    for key in ((9, 4), (9, 5), (94,), (9, 4, 0)):
        for stream in ("x", "y"):
            with random_key(*key):
                found.add(next_bits(stream))
    assert len(found) == 8
    assert all(-(2**63) <= bits < 2**63 for bits in found)


# --- adding at repeated positions -------------------------------------------------------------------------------


def test_scatter_add_adds_all_values_of_a_position(device):
    target = get_device(device).from_host(np.zeros((3, 2)))
    index = get_device(device).from_host(np.array([0, 2, 0]))
    scatter_add(target, index, get_device(device).from_host(np.array([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])))
    assert get_device(device).to_host(target).tolist() == [[11.0, 22.0], [0.0, 0.0], [3.0, 4.0]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_add_rows_is_add_at(data):
    count = data.draw(st.sampled_from([1, 7, 1024, 1025, 3000]), label="count")
    ids = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=20), label="ids"), np.int64)
    width = data.draw(st.integers(0, 3), label="width")
    rows = np.random.default_rng(len(ids)).standard_normal((len(ids), width))
    expected = np.zeros((count, width))
    np.add.at(expected, ids, rows)
    out = add_rows(ids, rows, count)
    assert out.shape == (count, width)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("count", [10, 5000])
def test_add_rows_on_each_device_and_in_each_dtype(count, device):
    place = get_device(device)
    for dtype in (np.float32, np.float64):
        ids, rows = np.array([3, 0, 3, 9, 3]), np.arange(10, dtype=dtype).reshape(5, 2)
        out = add_rows(place.from_host(ids), place.from_host(rows), count)
        assert out.dtype == dtype
        host = place.to_host(out)
        assert host[[0, 3, 9]].tolist() == [[2, 3], [12, 15], [6, 7]]
        assert host.sum() == rows.sum()
        empty = add_rows(place.from_host(ids[:0]), place.from_host(rows[:0]), count)
        assert empty.shape == (count, 2)
        assert place.to_host(empty).sum() == 0
