"""The small programs among the parts of a visit to a GPU (visit.py).

python -m benchmarks.visit_checks versions                  what is installed, and how long the first kernel takes
python -m benchmarks.visit_checks same-bytes                two runs of the baby GPT give the same checkpoint
python -m benchmarks.visit_checks attention                 flash attention in GPT-2's shape, for a profiler
python -m benchmarks.visit_checks loss FOLDER PREFIX        the best loss of a run; its tables become PREFIX-...
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import cpu_model, gpu_model, installed
from tinygrad_lite import functional as F
from tinygrad_lite.cli.console import run_command
from tinygrad_lite.cli.errors import OptionError, UserError
from tinygrad_lite.device import get_device, keyed_rng
from tinygrad_lite.nn import Parameter
from tinygrad_lite.precision import precision
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.training.run_folder import METRICS, RunFolder, available_cores

ROOT = Path(__file__).parent.parent
PACKAGES = "numpy ml_dtypes safetensors threadpoolctl pytest pytest-xdist hypothesis torch transformers triton".split()
ATTENTION = (12, 12, 1024, 64)  # B, H, T, D of GPT-2's training step
SAME = ("baby-gpt", "--text", "README.md", "--max_iters", "60", "--eval_interval", "60", "--eval_iters", "4")


def main(argv: list[str]) -> int:
    """Carry out one check."""
    checks = {"versions": versions, "same-bytes": same_bytes, "attention": attention, "loss": loss}
    if not argv or argv[0] not in checks:
        raise OptionError(f"{' '.join(argv)!r}: must begin with one of {', '.join(checks)}")
    checks[argv[0]](*argv[1:])
    return 0


def versions() -> None:
    """Print what matters about the machine."""
    print(f"Python {sys.version.split()[0]}; {cpu_model()}, {available_cores()} cores")
    print(", ".join(f"{name} {installed(name)}" for name in PACKAGES), flush=True)
    began = time.perf_counter()
    cupy = get_device("cuda").xp  # compiles a kernel
    print(f"{gpu_model()}; usable after {time.perf_counter() - began:.1f} s", flush=True)
    cupy.show_config()
    with precision("bfloat16"):
        print("bfloat16 is supported")


def same_bytes(*arguments: str) -> None:
    """Train twice with the same command.

    Raises: UserError if the checkpoints differ.
    """
    settings = arguments or (*SAME, "--device", "cuda", "--dtype", "bfloat16")
    with tempfile.TemporaryDirectory(prefix="tinygrad_lite-") as folder:
        runs = [RunFolder(Path(folder) / name) for name in ("one", "two")]
        for run in runs:
            command = [sys.executable, str(ROOT / "train.py"), *settings, "--out_dir", str(run.path)]
            if subprocess.run(command, cwd=ROOT).returncode:
                raise UserError("a run failed")
        found = [hashlib.sha256(run.last.read_bytes()).hexdigest() for run in runs]
    print("\n".join(found))
    if found[0] != found[1]:
        raise UserError("the two runs gave different bytes")
    print("the two runs gave the same bytes")


def attention(*sizes: str) -> None:
    """Attention in bfloat16, forward and backward, three times."""
    shape = tuple(map(int, sizes)) or ATTENTION
    q, k, v = (Parameter(keyed_rng(1, name).standard_normal(shape, "float32")) for name in "qkv")
    place = get_device("cuda")
    for x in (q, k, v):
        x.data = place.from_host(x.data)
    unit = Tensor.eye(shape[-1], device="cuda")
    with precision("bfloat16"):
        for _ in range(3):
            y = F.scaled_dot_product_attention(*(F.linear(x, unit) for x in (q, k, v)), is_causal=True)
            y.backward(y.detach())
    place.synchronize()
    print(f"attention of {shape}: the mean of |dq| is {float(abs(q.grad.data).mean()):.4g}")


def loss(folder: str, prefix: str) -> None:
    """Print the evaluations of a run, and copy its tables to PREFIX-metrics.csv and PREFIX-samples.txt.

    Raises: UserError if there is none.
    """
    run = RunFolder(folder)
    with open(run.metrics, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, METRICS))[1:]
    for path in (run.metrics, run.samples):
        if path.exists():
            shutil.copyfile(path, f"{prefix}-{path.name}")
    evaluated = [(int(row["step"]), float(row["val_loss"])) for row in rows if row["val_loss"]]
    speeds = sorted(float(row["tokens_per_second"]) for row in rows if row["tokens_per_second"])
    if not evaluated:
        raise UserError(f"there is no evaluation in {run.metrics}")
    print(" ".join(f"{step}: {value:.4f}" for step, value in evaluated))
    step, best = min(evaluated, key=lambda one: one[1])
    speed = f"; {speeds[len(speeds) // 2]:,.0f} tokens/s" if speeds else ""
    print(f"best loss {best:.4f} at step {step:,} of {evaluated[-1][0]:,}{speed}")


if __name__ == "__main__":
    run_command("benchmarks", main)
