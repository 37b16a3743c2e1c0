"""Tests run again on a GPU: tensors that a test makes without naming a device lie on the device under test.

Most tests say `Tensor([1.0, 2.0])` or `GPT(config)` and name no device. If they are marked `every_device`, the fixture
`place` (conftest.py) runs each of them on the CPU and on cuda. This affects test code only: a tensor that the product
makes without naming a device still lies on the CPU, so combining it with those of the test fails.

    pytest -m gpu                    on the GPU; skipped where there is none
    pytest -m gpu --emulate-gpu      the same tests on the emulated one
    pytest                           the CPU; tests marked `emulated_by_default` on the emulated GPU too

The other marks, `cpu_only`, `without_kernels` and `too_long_to_emulate`, are explained in pyproject.toml.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sample
import train
from tests.standin import standin_device
from tinygrad_lite import Tensor
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.nn import Module, Parameter

TESTS = Path(__file__).parent
SCRIPTS = [train, sample]  # those of the shelf are added by its tests

_here = "cpu"


def here() -> str:
    """The device under test."""
    return _here


@contextmanager
def elsewhere() -> Iterator[str]:
    """Inside, there is a second device beside the one under test; yields its name."""
    if _here == "cpu":
        with standin_device() as name:
            yield name
    else:
        yield "cpu"


def there_and_back(x: Tensor, fn: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
    """fn(x), computed on another device (inside `elsewhere`)."""
    return fn(x.to("standin" if _here == "cpu" else "cpu")).to(_here)


def is_fused(name: str) -> bool:
    """Whether an operation has a fused version for the device under test."""
    operation = REGISTRY[name]
    return operation.version_for(_here) is not operation.composed


def fill(tensor: Tensor, values: Any) -> None:
    """Write numbers from the host into a tensor, wherever it lies."""
    values = np.broadcast_to(np.asarray(values, tensor.dtype), tensor.shape)
    tensor.data[...] = get_device(tensor.device).from_host(np.ascontiguousarray(values))


def called_by_a_test() -> bool:
    """Whether the function that calls this one was itself called from a file of the tests."""
    return sys._getframe(2).f_code.co_filename.startswith(str(TESTS))


def kinds_of(kind: type) -> Iterator[type]:
    """A class and all its subclasses."""
    yield kind
    for derived in kind.__subclasses__():
        yield from kinds_of(derived)


def placed_tensor(init: Callable) -> Callable:
    """A tensor's `__init__` whose default device is the one under test."""

    @functools.wraps(init)
    def make(self: Tensor, data: Any, *wrong: Any, device: str | None = None, **options: Any):
        on_host = isinstance(data, (np.ndarray, np.generic)) or not hasattr(data, "__array__")
        place = _here if device is None and on_host and called_by_a_test() else device
        init(self, data, *wrong, device=place, **options)

    return make


def placed_module(init: Callable) -> Callable:
    """The `__init__` of a parameter or module that a test makes: at its end, the parameters move to the device."""

    @functools.wraps(init)
    def make(self: Parameter | Module, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        if called_by_a_test():
            for parameter in [self] if isinstance(self, Parameter) else self.parameters():
                if parameter.device == "cpu":
                    parameter.data = get_device(_here).from_host(parameter.data)

    return make


def placed_constructor(maker: Callable) -> staticmethod:
    """A constructor such as `Tensor.zeros`, whose default device in tests is the one under test."""

    @functools.wraps(maker)
    def make(*args: Any, **options: Any) -> Tensor:
        return maker(*args, **{"device": _here} | options if called_by_a_test() else options)

    return staticmethod(make)


def placed_script(main: Callable) -> Callable:
    """A script whose default device is the one under test."""

    @functools.wraps(main)
    def run(argv: list[str]) -> int:
        named = any(word.split("=")[0] == "--device" for word in argv)
        return main(argv if named else [*argv, f"--device={_here}"])

    return run


@contextmanager
def tests_on(device: str) -> Iterator[None]:
    """Inside, tensors, parameters and modules that tests make without naming a device lie on this one."""
    global _here
    _here = device
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "__init__", placed_tensor(Tensor.__init__))
        for kind in (*kinds_of(Parameter), *kinds_of(Module)):
            if "__init__" in vars(kind):
                patch.setattr(kind, "__init__", placed_module(kind.__init__))
        for name in ("full", "zeros", "ones", "arange", "eye", "rand", "randn"):
            patch.setattr(Tensor, name, placed_constructor(getattr(Tensor, name)))
        for script in SCRIPTS:
            patch.setattr(script, "main", placed_script(script.main))
        try:
            yield
        finally:
            _here = "cpu"
