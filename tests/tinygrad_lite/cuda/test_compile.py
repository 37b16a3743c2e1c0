"""Every kernel, for all types that the project requests, is compiled by NVIDIA's compiler; no GPU is needed.

The types are recorded: tiny models train and all operations run in all their cases, with kernels that do nothing.
"""

import itertools
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.emulator.cupy_on_cpu import KERNEL, RawModule, emulated_cuda
from tests.gpt.combined_settings import QWEN, SPEED_RUN
from tests.gpt.configs import has
from tests.tinygrad_lite.cuda.every_kernel import call_all_cases, call_every_kernel
from tests.tinygrad_lite.cuda.tiny_training import heads, tiny_gpt, tiny_seq2seq, train, written
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import decode, flash_attention, launch
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import bfloat16, precision

SOURCES = sorted(launch.SOURCES.glob("*.cu"))
Compiled = tuple[str, tuple[str, ...]]  # a source and its options


def use_everything(device: str) -> None:
    """Call everything that has a kernel, with all types for which there is one."""
    for width, numbers in itertools.product((64, 16, 6), ("float32", "bfloat16", "float64")):
        dtype, modern = "float64" if numbers == "float64" else "float32", {"n_embd": width} | heads(width)
        with precision("float32" if numbers == "float64" else numbers):
            train(tiny_gpt(device, dtype, n_embd=width, dropout=0.1, bias=True), device, 1)
            train(tiny_seq2seq(device, dtype, n_embd=width, activation="gelu_tanh"), device, 1)
            for settings in filter(has, (QWEN, SPEED_RUN)):
                train(tiny_gpt(device, dtype, **settings | modern), device, 1, use_muon=True)
            written(tiny_gpt(device, dtype, n_embd=width))
            wide = Tensor.ones(1, 257, device=device, dtype=dtype, requires_grad=True)
            F.layer_norm(wide, weight=Tensor.ones(257, device=device, dtype=dtype)).sum().backward()
    xp = get_device(device).xp
    for rows, texts in itertools.product((16, 1024, 2048, 4096), (8, 16, 32)):  # all tiles of a product
        x, weight, out = xp.empty((texts, 8)), xp.empty((rows, 8), bfloat16()), xp.empty((texts, rows))
        decode.linear(x, weight, None, out)()
    for texts in (1, 200, 300):  # blocks of all sizes
        q, cache, inputs = xp.empty((texts, 1, 64)), xp.empty((texts, 2, 1, 1, 64), bfloat16()), xp.empty(1, np.int64)
        decode.attention(q, 1.0, None, 0.0, None, q, inputs, cache.dtype, cache.shape)(cache)
    call_every_kernel(device)
    call_all_cases(device, (np.float64,))
    with precision("bfloat16"):
        for x in (Tensor.ones(2, width, device=device) for width in (3, 4)):
            (F.residual(x, x) + F.residual(x, x.linear(Tensor.eye(x.shape[1], device=device)))).numpy()
        for width, (t, p) in itertools.product(flash_attention.TILES, ((3, 0.0), (3, 0.1), (128, 0.0))):
            x = Tensor.ones(1, 1, t, width, device=device, requires_grad=True).linear(Tensor.eye(width, device=device))
            F.scaled_dot_product_attention(x, x, x, dropout_p=p).sum().backward()


@pytest.fixture(scope="module")
def requested() -> dict[Compiled, set[str]]:
    """The names of the requested kernels, by source and options."""
    found: dict[Compiled, set[str]] = {}

    def get_function(self, name):
        assert name in dict(KERNEL.findall(self.code))
        found.setdefault((self.code, self.options), set()).add(name)
        return lambda *_: None

    with pytest.MonkeyPatch.context() as patch, emulated_cuda() as device, np.errstate(all="ignore"):
        patch.setattr(RawModule, "get_function", get_function)
        use_everything(device)
    return found


def test_every_kernel_is_requested(requested):
    """A kernel that is not would be dead code, and the test below would miss it."""
    kernels = {(path.stem, name) for path in SOURCES for name, _ in KERNEL.findall(launch.source(path.stem))}
    code = {launch.source(path.stem): path.stem for path in SOURCES}
    assert {(code[text], name) for (text, _), names in requested.items() for name in names} == kernels


def variants(requested: dict[Compiled, set[str]]) -> Iterator[Compiled]:
    """The requested sources, also with the other PACK, which depends on the address of an array."""
    seen = set()
    for text, options in requested:
        packs = [("-DPACK=4", one) for one in ("-DPACK=1", "-DPACK=4")] if "-DPACK=4" in options else [("", "")]
        for old, new in packs:
            variant = text, tuple(new if option == old else option for option in options)
            if variant not in seen:
                seen.add(variant)
                yield variant


def compiled(text: str, options: tuple[str, ...]) -> str:
    """The log of NVIDIA's compiler for a source."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, "kernels.cu", [], [])
    try:
        nvrtc.compileProgram(program, ["--ptxas-options=-v", *options])
        assert nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        pytest.fail(f"{options}: {nvrtc.getProgramLog(program)}")
    log = nvrtc.getProgramLog(program)
    nvrtc.destroyProgram(program)
    return log


@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90"])
def test_every_kernel_compiles_and_keeps_its_numbers_in_registers(requested, architecture):
    """Numbers that do not fit into registers go to memory, which is hundreds of times slower.

    At most eight numbers of a thread may, in a kernel that limits its registers so that more blocks run at once.
    """
    pytest.importorskip("cupy")
    work = [(text, (f"--gpu-architecture={architecture}", *options)) for text, options in variants(requested)]
    logs = [compiled(*work[0])]  # alone, because the compiler loads a library during its first run
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        logs += pool.map(lambda one: compiled(*one), work[1:])
    for (text, options), log in zip(work, logs, strict=True):
        kernels = re.findall(r"Compiling entry function '(\w+)'", log)
        in_memory = [int(count) for count in re.findall(r"(\d+) bytes stack frame", log)]
        assert sorted(kernels) == sorted(name for name, _ in KERNEL.findall(text))
        assert len(in_memory) >= len(kernels)
        assert max(in_memory) <= 32, f"{options}: {log}"
