"""The time of a training step of nano.py, compared with the same step of the project, in one process.

    python -m benchmarks.nano

Three ways to compute one thing: the tensors of nano.py, the project's reference versions (--composed), and its fused
versions. They take turns on the same batches, with the model and batch of nano.py's defaults, and AdamW.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import nano
from benchmarks.machine import cpu_model, numpy_blas
from extra.gpt.config import GPTConfig
from gpt.model import GPT
from tinygrad_lite.functional.registry import composed
from tinygrad_lite.optim import AdamW
from tinygrad_lite.tensor import Tensor
from training.cli.console import run_command, say
from training.folder import tune_memory

TURNS, BATCH, CHARACTERS = 15, 4, 92  # Goethe's text has 91 different characters


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    tune_memory()  # like the scripts
    small = nano.GPT([chr(i) for i in range(CHARACTERS - 1)], nano.SHAPE)
    rule = nano.AdamW(list(small.weights.values()))
    model = GPT(GPTConfig(vocab_size=CHARACTERS, **nano.SHAPE, **nano.FIXED))
    model.load_state_dict({name: weight.data for name, weight in small.weights.items()})
    optimizer, rng = AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1), np.random.default_rng(0)

    def nano_step(ids: np.ndarray) -> None:
        small.loss(ids[:, :-1], ids[:, 1:]).backward()
        rule.step(1e-3)

    def fused_step(ids: np.ndarray) -> None:
        optimizer.zero_grad()
        model.loss((Tensor(ids[:, :-1]), Tensor(ids[:, 1:]))).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()

    def composed_step(ids: np.ndarray) -> None:
        with composed():
            fused_step(ids)

    ways: dict[str, Callable] = {"nano.py": nano_step, "--composed": composed_step, "fused": fused_step}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS + 1):
        ids = rng.integers(0, CHARACTERS, (BATCH, nano.SHAPE["block_size"] + 1))
        for name in list(ways) if turn % 2 else list(ways)[::-1]:
            began = time.perf_counter()
            ways[name](ids)
            times[name].append(time.perf_counter() - began)
    say(f"{cpu_model()}, {numpy_blas()}, one process; medians of {TURNS} turns")
    print("| | ms per step | of the fused |\n|---|---|---|")
    for name, seconds in times.items():
        ratio = statistics.median(a / b for a, b in zip(seconds[1:], times["fused"][1:], strict=True))
        print(f"| {name} | {1e3 * statistics.median(seconds[1:]):.0f} | {ratio:.1f} |")
    return 0


if __name__ == "__main__":
    run_command("benchmarks.nano", main)
