"""How the checks of the course compare an answer with what is right: they name the first place that is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(answer: Any, right: Any, what: str, rtol: float = 1e-5, atol: float = 1e-8) -> None:
    """Compare two numbers, or two arrays element by element.

    Raises: AssertionError with both shapes if they differ, or else with both numbers at the first place where the
        answer is off by more than atol + rtol |right|, or is no number.
    """
    answer, right = np.asarray(answer, float), np.asarray(right, float)
    assert answer.shape == right.shape, f"{what}: the shape of yours is {answer.shape}, it must be {right.shape}"
    wrong = np.argwhere(~np.isclose(answer, right, rtol, atol))
    if len(wrong):
        first = tuple(wrong[0].tolist())
        place = f" at {list(first)}" if first else ""
        digits = next(n for n in (4, 8, 17) if n == 17 or f"{answer[first]:.{n}g}" != f"{right[first]:.{n}g}")
        more = f" ({len(wrong)} of {right.size} are wrong)" if right.size > 1 else ""
        raise AssertionError(
            f"{what}:{place} yours is {answer[first]:.{digits}g}, it must be {right[first]:.{digits}g}{more}"
        )
