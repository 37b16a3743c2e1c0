"""Calls every kernel on a GPU, with small arrays: for compute-sanitizer, under which each kernel takes long.

python -m tests.tinygrad_lite.cuda.every_kernel
compute-sanitizer --tool racecheck python -m tests.tinygrad_lite.cuda.every_kernel
"""

import sys

import numpy as np

from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from tests.tinygrad_lite.functional.version_cases import CASES, tensors
from tinygrad_lite import Tensor, optim
from tinygrad_lite import functional as F
from tinygrad_lite.cuda.precision import precision
from tinygrad_lite.device import get_device


def call_every_kernel(device: str) -> None:
    """Train two models for a step in bfloat16, then compute all cases of all operations in float32."""
    for make in (tiny_gpt, tiny_seq2seq):
        with precision("bfloat16"):
            losses = train(make(device, n_embd=64, dropout=0.1, bias=True), device, 1)
        print(f"{make.__name__}: loss {losses[0]:.4f}", flush=True)
    for name, cases in CASES.items():
        for case in cases.values():
            y = getattr(optim if name in ("adamw", "muon") else F, name)(**tensors(case, np.float32, device=device))
            if isinstance(y, Tensor):
                y.numpy()  # the sum of a residual connection is computed only when something reads it
            if isinstance(y, Tensor) and y.requires_grad:
                y.backward(Tensor.ones(y.shape, dtype=y.dtype, device=device))
        get_device(device).synchronize()
        print(f"{name}: {len(cases)} cases", flush=True)


def main() -> None:
    place = get_device("cuda")
    # Each array in memory of its own: in CuPy's pool an access beyond an array would hit another, and not be noticed.
    place.xp.cuda.set_allocator(None)
    with np.errstate(all="ignore"):
        call_every_kernel("cuda")


if __name__ == "__main__":
    sys.exit(main())
