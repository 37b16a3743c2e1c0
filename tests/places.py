"""Tests run again on a GPU: tensors that a test makes without naming a device lie on the device under test.

Most tests say `Tensor([1.0, 2.0])` or `GPT(config)` and name no device. For the files in ON_EVERY_DEVICE the fixture
`place` (conftest.py) runs each of them on the CPU and on cuda. This affects test code only: a tensor that the product
makes without naming a device still lies on the CPU, so combining it with those of the test fails.

    pytest -m gpu                    on the GPU; skipped where there is none
    pytest -m gpu --emulate-gpu      the same tests on the emulated one
    pytest                           the CPU, the files named in EMULATED_BY_DEFAULT on the emulated GPU too
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
from seq2seq import evaluate
from tests.standin import standin_device
from tinygrad_lite import Tensor
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.nn import Module, Parameter

TESTS = Path(__file__).parent
ON_EVERY_DEVICE = """
    tinygrad_lite/debug/test_anomaly tinygrad_lite/debug/test_gradcheck tinygrad_lite/debug/test_graph
    tinygrad_lite/test_adapt tinygrad_lite/test_backward
    tinygrad_lite/test_nn tinygrad_lite/test_ops tinygrad_lite/test_ops_edges tinygrad_lite/test_optim
    tinygrad_lite/test_tensor tinygrad_lite/test_transformer
    tinygrad_lite/functional/test_attention tinygrad_lite/functional/test_conv
    tinygrad_lite/functional/test_cross_entropy
    tinygrad_lite/functional/test_dropout tinygrad_lite/functional/test_embedding
    tinygrad_lite/functional/test_gates tinygrad_lite/functional/test_gelu tinygrad_lite/functional/test_layer_norm
    tinygrad_lite/functional/test_linear tinygrad_lite/functional/test_pool
    tinygrad_lite/functional/test_registry tinygrad_lite/functional/test_rms_norm
    tinygrad_lite/functional/test_rotary tinygrad_lite/functional/test_softmax
    gpt/test_model gpt/test_pretrained gpt/test_export gpt/test_score
    seq2seq/test_model seq2seq/test_attention seq2seq/test_translate seq2seq/test_toys seq2seq/test_data
    reliability/test_gradients reliability/test_hard_points reliability/test_nan
    test_train test_train_finetune test_train_resume test_sample test_sample_modes test_translation_scripts
    tinygrad_lite/debug/test_profiler tinygrad_lite/training/test_run_folder
""".split()
EMULATED_BY_DEFAULT = """
    tinygrad_lite/debug/test_anomaly tinygrad_lite/test_nn tinygrad_lite/test_tensor
""".split()
# Primitives have no kernels, so the emulated GPU tests nothing that the stand-in does not: only with `-m slow`.
WITHOUT_KERNELS = "tinygrad_lite/test_ops tinygrad_lite/test_device".split()
CPU_ONLY = {  # and the reasons
    "tinygrad_lite/test_tensor::test_data_is_copied_and_wrap_does_not_copy": "memory of the host",
    "tinygrad_lite/test_tensor::test_numpy_is_a_read_only_view": "a view of the CPU's memory; from a GPU it is a copy",
    "tinygrad_lite/test_tensor::test_numpy_accepts_a_tensor_as_an_array": "memory of the host",
    "tinygrad_lite/test_tensor::test_conversion_to_numpy_never_drops_a_gradient_silently": "the same",
    "tinygrad_lite/test_tensor::test_arrays_beside_a_tensor_become_constants": "NumPy's arrays do not mix with a GPU's",
    "tinygrad_lite/test_tensor::test_one_hot_refuses_an_unknown_class": "not checked on a GPU",
    "tinygrad_lite/test_ops::test_neither_inputs_nor_incoming_gradient_are_written": "memory that cannot be written",
    "tinygrad_lite/test_ops_edges::test_a_numpy_array_may_stand_on_the_left": "NumPy's arrays do not mix with a GPU's",
    "tinygrad_lite/test_ops_edges::test_numbers_take_the_tensors_type_if_they_can": "the same",
    "tinygrad_lite/test_backward::test_gradients_share_no_memory": "CuPy has no flag for what can be written",
    "tinygrad_lite/debug/test_gradcheck::test_views_are_nudged_in_place": "memory of the host",
    "tinygrad_lite/functional/test_embedding::test_a_token_outside_the_table_is_refused": "not checked on a GPU",
    "tinygrad_lite/functional/test_cross_entropy::test_a_target_outside_the_vocabulary_is_refused": "the same",
    "test_train::test_a_missing_device_is_refused_and_auto_reports_its_choice": "for machines without a GPU",
    "test_sample::test_a_missing_device_is_refused_and_auto_reports_its_choice": "for machines without a GPU",
    "reliability/test_nan::test_a_nan_in_a_worker_is_reported_with_its_operation": "several workers are for the CPU",
    "test_train::test_the_estimate_of_memory_is_close_to_what_a_step_keeps": "a GPU's kernels keep less",
    "test_train::test_the_estimate_with_recompute_is_close_to_the_peak_of_a_step": "the same",
    "test_train_resume::test_a_signal_saves_and_says_how_to_resume": "runs in a separate process",
    "tinygrad_lite/functional/test_attention::test_any_division_into_blocks_gives_the_same_results": "the CPU's blocks",
    "tinygrad_lite/functional/test_attention::test_dropout_is_the_same_in_both_versions": "a GPU draws differently",
    "tinygrad_lite/functional/test_conv::test_only_inputs_are_kept_for_the_backward_pass": "the CPU's version",
    "tinygrad_lite/functional/test_pool::test_little_is_kept_for_the_backward_pass": "the CPU's version",
    "tinygrad_lite/functional/test_dropout::test_both_versions_drop_the_same_elements": "the same",
    "tinygrad_lite/functional/test_dropout::test_torch_agrees_given_the_mask": "the same",
    "tinygrad_lite/test_adapt::test_only_matrices_of_floats_can_be_merged_with": "quantized weights are for the CPU",
    "tinygrad_lite/test_adapt::test_over_quantized_weights_the_same_learns_and_the_same_is_counted": "the same",
    "tinygrad_lite/test_adapt::test_shapes_are_enough_to_count": "the same",
    "tinygrad_lite/test_adapt::test_a_change_of_earlier_stands_beside_its_map": "NumPy's arrays do not mix with CuPy's",
    "tinygrad_lite/test_optim::test_several_threads_compute_the_same_bits": "the CPU's threads",
    "tinygrad_lite/functional/test_registry::test_the_switch_changes_which_version_runs": "needs all fused versions",
}
TOO_LONG_TO_EMULATE = {"seq2seq/test_toys::test_reversal_is_learned_perfectly"}  # half an hour

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


def name_of(item: pytest.Item) -> str:
    """A test's name in the lists above: "gpt/test_data::test_x" is `test_x` in tests/gpt/test_data.py."""
    folder = TESTS if TESTS in item.path.parents else item.path.anchor
    return f"{item.path.relative_to(folder).with_suffix('').as_posix()}::{getattr(item, 'originalname', item.name)}"


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
        for script in (train, sample, evaluate):
            patch.setattr(script, "main", placed_script(script.main))
        try:
            yield
        finally:
            _here = "cpu"
