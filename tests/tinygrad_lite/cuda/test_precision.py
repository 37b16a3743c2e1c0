"""Choosing a precision, and options that ask for an unavailable one."""

import dataclasses
import sys

import pytest

from tinygrad_lite import device
from tinygrad_lite.device import DeviceError
from tinygrad_lite.errors import OptionError
from tinygrad_lite.precision import (
    PRECISIONS,
    bfloat16,
    check_precision,
    get_precision,
    precision,
    set_precision,
)


def test_the_precision_is_restored():
    assert get_precision() == "float32"
    for name in PRECISIONS:
        with precision(name):
            assert get_precision() == name
    with pytest.raises(KeyError), precision("tf32"):
        raise KeyError
    assert get_precision() == "float32"
    with pytest.raises(ValueError, match="precision 'half': must be one of float32, tf32, bfloat16"):
        set_precision("half")


@pytest.mark.parametrize("name", PRECISIONS[1:])
def test_a_cpu_refuses_other_precisions(name):
    check_precision("float32", "cpu")
    check_precision("float64", "cpu")
    with pytest.raises(OptionError, match=f"--dtype {name} is a precision of a GPU's matrix units: give --device cuda"):
        check_precision(name, "cpu")


def assert_refused(name, place, match):
    for check in (lambda: check_precision(name, place), lambda: set_precision(name)):
        with pytest.raises(DeviceError, match=match):
            check()
    assert get_precision() == "float32"


@pytest.mark.parametrize("name", PRECISIONS[1:])
def test_an_old_gpu_supports_only_float32(cuda, name, monkeypatch):
    check_precision(name, cuda)
    old = dataclasses.replace(device.get_device(cuda), capability=7.5)
    with monkeypatch.context() as patch:  # the emulated GPU must not outlive its own context
        patch.setitem(device._BY_NAME, cuda, old)
        check_precision("float32", cuda)
        assert_refused(name, cuda, rf"precision {name}: .* is 7\.5, and 8\.0 is needed\): use float32")


def test_bfloat16_without_its_package_says_what_to_install(cuda, monkeypatch):
    bfloat16.cache_clear()
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    check_precision("tf32", cuda)
    assert_refused("bfloat16", cuda, "ml_dtypes, which is not installed: pip install ml_dtypes")
