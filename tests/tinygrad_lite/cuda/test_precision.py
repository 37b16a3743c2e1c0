"""The switch between precisions."""

import sys

import pytest

from tinygrad_lite.cuda.precision import get_precision, precision, set_precision
from tinygrad_lite.device import DeviceError


def test_bfloat16_without_its_package_says_what_to_install_and_changes_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DeviceError, match=r"--dtype bfloat16 needs the package ml_dtypes.*: pip install ml_dtypes$"):
        set_precision("bfloat16")
    assert get_precision() == "float32"
    with precision("tf32"):
        assert get_precision() == "tf32"
    assert get_precision() == "float32"


def test_an_unknown_precision_lists_the_known_ones():
    with pytest.raises(ValueError, match="precision 'half': there are float32, tf32, bfloat16"):
        set_precision("half")
    assert get_precision() == "float32"
