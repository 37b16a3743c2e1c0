"""How well counting neighbours predicts pixels."""

from pathlib import Path

import numpy as np
import pytest

from docs.course import check

neighbour_bits = check.load(Path(__file__).parents[3] / "docs/extra/pixel_counts.py").neighbour_bits


def test_counting_neighbours_is_a_distribution_and_learns():
    rng = np.random.default_rng(3)
    striped = (np.arange(6)[None, :, None] + rng.integers(0, 2, (50, 1, 1)) + np.zeros((1, 1, 6), int)) % 2
    noise = rng.integers(0, 2, (50, 6, 6))
    assert neighbour_bits(striped, striped, 2) < 0.2
    assert neighbour_bits(noise, noise, 2) == pytest.approx(1.0, abs=0.02)
    nothing = np.zeros((0, 6, 6), int)
    assert neighbour_bits(nothing, noise, 2) == pytest.approx(1.0)  # only the uniform distribution is left
