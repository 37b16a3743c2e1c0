"""Every kernel, for all types that the project requests, is compiled by NVIDIA's compiler; no GPU is needed.

The types are recorded: tiny models train and all operations run in all their cases, with kernels that do nothing.
"""

import ast
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gpt.model import GPT
from tests.emulator.cupy_on_cpu import KERNEL, RawModule, emulated_cuda
from tests.gpt.combined_settings import QWEN, SPEED_RUN
from tests.tinygrad_lite.cuda.naive import attention_naive, layer_norm_naive, softmax_naive
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from tests.tinygrad_lite.functional.version_cases import CASES, tensors
from tinygrad_lite import Tensor, optim
from tinygrad_lite import functional as F
from tinygrad_lite.cuda import flash_attention, launch
from tinygrad_lite.device import get_device
from tinygrad_lite.nn import Parameter
from tinygrad_lite.precision import PRECISIONS, precision

SOURCES = sorted(launch.SOURCES.glob("*.cu"))
MODULES = list(launch.SOURCES.glob("*.py"))
NAIVE = [Path(__file__).with_name("naive.py")]  # launches what only tests use
PARAMETER = re.compile(r"(long long|double) \w+|(const )?(\w+|long long|unsigned char) ?\* ?(__restrict__ )?\w+")
Compiled = tuple[str, tuple[str, ...]]  # a source and its options


def use_everything(device: str) -> None:
    """Call everything that has a kernel, with all types for which there is one."""
    for width in (64, 16, 6):
        for make in (tiny_gpt, tiny_seq2seq):
            for numbers in PRECISIONS:
                with precision(numbers):
                    train(make(device, n_embd=width, dropout=0.1, bias=True), device, 1)
            train(make(device, "float64", n_embd=width, dropout=0.1), device, 1)
            train(make(device, n_embd=width, activation="gelu_tanh"), device, 1)
        for modern in (QWEN, SPEED_RUN):
            for numbers in PRECISIONS:
                with precision(numbers):
                    train(
                        tiny_gpt(device, **modern | {"n_embd": width, "head_dim": width // 4 * 2}),
                        device,
                        1,
                        use_muon=True,
                    )
        for numbers in ("float32", "bfloat16"):
            with precision(numbers):
                generate_one(tiny_gpt(device, n_embd=width))
        generate_one(tiny_gpt(device, "float64", n_embd=width))
    for name, cases in CASES.items():
        for case in cases.values():
            for dtype in (np.float32, np.float64):
                y = getattr(optim if name in ("adamw", "muon") else F, name)(**tensors(case, dtype, device=device))
                if isinstance(y, Tensor) and y.requires_grad:
                    y.backward(Tensor.ones(y.shape, dtype=y.dtype, device=device))
    with precision("bfloat16"):
        for x in (Tensor.ones(2, width, device=device) for width in (3, 4)):
            (F.residual(x, x) + F.residual(x, x.linear(Tensor.eye(x.shape[1], device=device)))).numpy()
    for width in flash_attention.TILES:
        for t, p in ((3, 0.0), (3, 0.1), (128, 0.0)):
            x = Parameter(np.ones((1, 1, t, width), np.float32))
            x.data = get_device(device).from_host(x.data)
            with precision("bfloat16"):
                flowing = x.linear(Tensor.eye(width, device=device))
                y = F.scaled_dot_product_attention(flowing, flowing, flowing, dropout_p=p)
            y.backward(y.detach())
    one = get_device(device).xp.ones((1, 1, 1, 1), np.float32)
    attention_naive(one, one, one, 1.0)
    layer_norm_naive(one[0, 0], one[0, 0, 0], one[0, 0, 0], 1.0)
    softmax_naive(one, 0)


def generate_one(model: GPT) -> None:
    """A token for a single text, and one for each of several."""
    model.eval()
    for rows in (1, 5):
        model.start(np.ones((rows, 1), int))


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

    At most four numbers of a thread may, in a kernel that limits its registers so that more blocks run at once.
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
        assert max(in_memory) <= 16, f"{options}: {log}"


# --- the rules of the sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_kernels_take_only_integers_doubles_and_pointers(path):
    """launch() passes only these three types; sizes may exceed the range of an int."""
    text = launch.source(path.stem)
    kernels = KERNEL.findall(text)
    assert len(kernels) == len(re.findall(r"^[^/\n]*__global__", text, re.MULTILINE))
    for name, parameters in kernels:
        for parameter in parameters.split(","):
            assert PARAMETER.fullmatch(" ".join(parameter.split())), f"{name}: {parameter}"


def launched_by(modules: list[Path]) -> list[str]:
    """Patterns of the sources whose kernels these modules request. (A test above checks the same for every kernel.)"""
    nodes = [node for path in modules for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "kernel"]
    patterns = []
    for call in calls:
        parts = call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else [call.args[0]]
        patterns.append("".join(p.value if isinstance(p, ast.Constant) else r"\w+" for p in parts))
    return patterns


def test_every_source_is_used():
    """A module in the same folder uses it; only of naive kernels may it be a module of the tests."""
    product, naive = launched_by(MODULES), launched_by(NAIVE)
    for path in SOURCES:
        patterns = naive if path.stem.endswith("_naive") else product
        assert any(re.fullmatch(pattern, path.stem) for pattern in patterns), path.name
