"""No function becomes less accurate: the errors of docs/course/03-checking/ulp.py in units of the last place."""

import numpy as np
import pytest

from docs.course import check as course

ulp = course.load(course.COURSE / "03-checking" / "ulp.py")
BOUNDS = {  # of result and gradient in float32, then in float64: the maxima of the table, rounded up
    "exp": (3, 3, 1, 1),
    "log": (4, 1, 1, 1),
    "sqrt": (1, 2, 1, 2),
    "sin": (2, 2, 1, 1),
    "cos": (2, 2, 1, 1),
    "tanh": (2, 3, 2, 3),
    "sigmoid": (4, 5, 3, 4),
    "erf": (6, 34, 14, 33),
    "gelu": (2, 2, 7, 4),
    "gelu, tanh": (2, 17, 2, 35),
    "silu": (2, 2, 2, 2),
    "swiglu": (2, 9, 2, 19),
    "softplus": (4, 1, 3, 1),
    "softmax": (4, 4, 3, 10),
    "log_softmax": (2, 3, 2, 3),
    "logsumexp": (1, 3, 1, 3),
    "cross_entropy": (2, 1, 2, 1),
    "layer_norm": (3, 3, 3, 4),
    "rms_norm": (3, 3, 3, 3),
    "attention": (15, 62, 13, 53),
    "rotary": (2, 2, 763, 964),
    "Muon's rounds": (50, 40),
}


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double has no more digits than double here")
@pytest.mark.parametrize("name", ulp.CASES)
def test_errors_do_not_grow(name):
    errors = [error for kind in (np.float32, np.float64) for error in ulp.measure(ulp.CASES[name], kind, 2_000)]
    assert [name for error, bound in zip(errors, BOUNDS[name], strict=True) if not error.largest <= bound] == []
