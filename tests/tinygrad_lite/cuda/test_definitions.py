"""Every operation with kernels of its own equals its reference version on the CPU, in the cases of version_cases.py."""

import numpy as np
import pytest

from tests.tinygrad_lite.functional.test_registry import assert_close, outcome
from tests.tinygrad_lite.functional.version_cases import CASES
from tinygrad_lite.functional.registry import REGISTRY, composed

TOLERANCES = {  # in float64 and in float32
    "embedding": (1e-12, 1e-6),
    "gelu": (1e-10, 1e-5),
    "linear_gelu": (1e-10, 1e-5),
    "muon": (1e-12, 5e-6),
    "relu_squared": (1e-12, 1e-6),
    "rms_norm": (1e-12, 2e-6),
    "rotary": (1e-12, 1e-6),
    "swiglu": (1e-12, 1e-6),
}


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", TOLERANCES)
def test_it_equals_its_definition(cuda, name, dtype, strided):
    for arguments in CASES[name].values():
        with composed():
            expected = outcome(REGISTRY[name], arguments, np.float64)
        expected = {key: array.astype(dtype) for key, array in expected.items()}
        found = outcome(REGISTRY[name], arguments, dtype, device=cuda, strided=strided)
        assert_close(found, expected, TOLERANCES[name][dtype == "float32"])
