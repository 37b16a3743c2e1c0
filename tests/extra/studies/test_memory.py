"""The memory that a dry run prints, and a profile that takes too much of it."""

import re

import pytest

import train
from tests.tiny_runs import arguments
from tests.training.test_estimate import CUPY, assert_advice, nearly_full  # noqa: F401


def dry_run(ran, **options):
    said = ran(train.main, *arguments(text=None, dry_run=True, n_embd=256, n_layer=4, **options)).err
    found = re.findall(r"([\d.]+) ([kMG])B (weights, grad.*|activations.*)", said)
    return [(float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[prefix], what) for number, prefix, what in found]


def test_memory_for_weights_depends_on_optimizer_and_workers(workplace, ran):
    (usual, what), (activations, _) = dry_run(ran)
    assert what == "weights, gradients and two moments"
    (smaller, what), (same, _) = dry_run(ran, optimizer="sgd")
    assert (round(smaller / usual, 2), same) == (0.75, activations)
    assert what == "weights, gradients and one moment"
    (larger, what), (same, _) = dry_run(ran, workers=3)
    assert (round(larger / usual, 1), same) == (1.5, activations)
    assert what == "weights, gradients of 3 workers and two moments"


def test_bfloat16_halves_the_activations_and_adds_a_copy_of_the_weights(workplace, ran, cuda):
    in_float32 = dry_run(ran, device=cuda, block_size=64, batch_size=32)
    in_bfloat16 = dry_run(ran, device=cuda, block_size=64, batch_size=32, dtype="bfloat16")
    assert in_bfloat16[0][1] == f"{in_float32[0][1]}, and a bfloat16 copy of the weights"
    assert in_bfloat16[0][0] / in_float32[0][0] == pytest.approx(18 / 16, rel=0.01)  # bytes for each weight
    assert in_bfloat16[1][0] == pytest.approx(in_float32[1][0] / 2, rel=0.01)


def test_a_gpu_is_measured_too(workplace, ran, cuda):
    said = ran(train.main, *arguments(device=cuda, dry_run=True)).err
    assert re.search(r"time +about .* 10 steps of \d+ ms and 4 evaluations of", said)


def test_a_profile_on_a_gpu_that_is_too_small_gives_advice(workplace, nearly_full, monkeypatch):  # noqa: F811
    assert_advice(arguments(device=nearly_full, profile=True), MemoryError(CUPY), r"2\.5 GiB", monkeypatch)
