"""The GPU's time in a step, kernel by kernel: two ways to measure it, and a table.

1. CUPTI, NVIDIA's interface for such tools, sees every kernel and every copy of this process, whoever started them,
   with its exact time. PyTorch's profiler uses it.
2. Where that is unavailable, an event (a time stamp that the GPU records) before and after each of our kernels and
   each product of cuBLAS. CuPy's own kernels are not covered: they are part of the remaining time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.steps import Step
from tinygrad_lite.cuda import gemm
from tinygrad_lite.cuda.launch import kernel
from tinygrad_lite.device import get_device

Spent = list[tuple[str, float]]  # kernels in the order in which they ran, with their microseconds
LONGEST_NAME = 90  # characters of a kernel's name, which may be a whole C++ template


def seen_by_cupti(step: Step) -> Spent:
    """The kernels of one step."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step(0)
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    return [(event.name, event.time_range.elapsed_us()) for event in seen.events() if event.device_type == on_gpu]


def between_events(step: Step, synchronize: Callable[[], None], head_start: Callable[[], None]) -> Spent:
    """Our kernels and the products of one step.

    Args:
        head_start: queues work that keeps the GPU busy. Without it the GPU would record an event and then wait for
            Python to launch the kernel.
    """
    cupy = get_device("cuda").xp

    marks: list[tuple[str, Any, Any]] = []
    with watched(marks):
        step(0)  # compiles the kernels
        synchronize()
        marks.clear()
        head_start()
        step(0)
        synchronize()
    return [(name, 1e3 * cupy.cuda.get_elapsed_time(begin, end)) for name, begin, end in marks]


@contextmanager
def watched(marks: list[tuple[str, Any, Any]]) -> Iterator[None]:
    """Inside, each kernel or product adds (name, event before, event after) to the list."""
    cupy = get_device("cuda").xp

    def marked(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        before, after = cupy.cuda.Event(), cupy.cuda.Event()
        before.record()
        result = function(*arguments)
        after.record()
        marks.append((name, before, after))
        return result

    class Module:
        """Replaces CuPy's module: returns marked kernels."""

        def __init__(self, **source: Any) -> None:
            self.module = plain(**source)

        def get_function(self, name: str) -> Callable[..., Any]:
            function = self.module.get_function(name)
            return lambda *arguments: marked(name, function, *arguments)

    class Products:
        """Replaces cuBLAS."""

        def __init__(self, library: Any) -> None:
            self.library = library

        def gemmEx(self, *arguments: Any) -> None:
            n, m, k = arguments[3:6]
            marked(f"product ({m}, {k}) @ ({k}, {n})", self.library.gemmEx, *arguments)

        def gemmStridedBatchedEx(self, *arguments: Any) -> None:
            (n, m, k), count = arguments[3:6], arguments[-3]
            function = self.library.gemmStridedBatchedEx
            marked(f"{count} products ({m}, {k}) @ ({k}, {n})", function, *arguments)

    plain, plain_cublas = cupy.RawModule, gemm.cublas
    kernel.cache_clear()  # so that every kernel is loaded from the module again
    cupy.RawModule = Module
    gemm.cublas = lambda: (Products(plain_cublas()[0]), plain_cublas()[1])
    try:
        yield
    finally:
        cupy.RawModule, gemm.cublas = plain, plain_cublas
        kernel.cache_clear()


def kernel_table(title: str, answer: dict[str, Any], limit: int = 25) -> str:
    """The page for one step: its kernels by name, the longest times first.

    Args:
        answer: a side's reply to the question "kernels".
    """
    spent: Sequence[tuple[str, float]] = answer["kernels"]
    sums: dict[str, list[float]] = {}
    for name, us in spent:
        sums.setdefault(name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 3] + "...", []).append(us)
    total = sum(us for _, us in spent)
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1]))
    lines = [
        f"## {title}",
        "",
        f"A step takes {answer['ms']:.2f} ms, of which Python needs {answer['asked_ms']:.2f} ms to launch it. "
        f"{len(spent)} kernels and copies, measured with {answer['source']}, take {total / 1e3:.2f} ms on the GPU.",
        "",
        "| kernel | times | µs | share |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {len(us)} | {sum(us):.1f} | {sum(us) / total:.1%} |" for name, us in ordered[:limit] if total
    ]
    if rest := ordered[limit:]:
        us = sum(sum(each) for _, each in rest)
        lines.append(f"| {len(rest)} others | {sum(len(each) for _, each in rest)} | {us:.1f} | {us / total:.1%} |")
    return "\n".join(lines) + "\n"
