"""Calls every kernel on a GPU, with small arrays: for compute-sanitizer, under which each kernel takes long.

python -m tests.tinygrad_lite.cuda.every_kernel
compute-sanitizer --tool racecheck python -m tests.tinygrad_lite.cuda.every_kernel
"""

import itertools
import sys
from collections.abc import Sequence

import numpy as np

from tests.gpt.combined_settings import SPEED_RUN
from tests.tinygrad_lite.cuda.naive import attention_naive, layer_norm_naive, softmax_naive
from tests.tinygrad_lite.cuda.tiny_training import tiny_gpt, tiny_seq2seq, train
from tests.tinygrad_lite.functional.version_cases import CASES, tensors
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F
from tinygrad_lite.device import get_device
from tinygrad_lite.functional.registry import REGISTRY
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng


def call_every_kernel(device: str) -> None:
    """Train three models for a step in bfloat16, then compute all cases of all operations in float32.

    Each model that can also generates a token, for two texts and for nine.
    """
    classic = {"n_embd": 64, "dropout": 0.1, "bias": True}
    for make, settings in ((tiny_gpt, classic), (tiny_seq2seq, classic), (tiny_gpt, SPEED_RUN | {"n_embd": 64})):
        with precision("bfloat16"):
            model = make(device, **settings)
            losses = train(model, device, 1, use_muon=settings is not classic)
            if make is tiny_gpt:
                for texts in (2, 9):
                    model.eval().start(np.ones((texts, 1), np.int64))
        print(f"{make.__name__}: loss {losses[0]:.4f}", flush=True)
    call_all_cases(device, (np.float32,))


def call_all_cases(device: str, dtypes: Sequence[type]) -> None:
    """All operations forward and backward in all cases, in these types; then the naive kernels."""
    for name, cases in CASES.items():
        for case, dtype in itertools.product(cases.values(), dtypes):
            y = REGISTRY[name](**tensors(case, dtype, device=device))
            if isinstance(y, Tensor):
                y.numpy()  # the sum of a residual connection is computed only when something reads it
            if isinstance(y, Tensor) and y.requires_grad:
                y.backward(Tensor.ones(y.shape, dtype=y.dtype, device=device))
        get_device(device).synchronize()
        print(f"{name}: {len(cases)} cases", flush=True)
    wide = Tensor.ones(1, 257, device=device, requires_grad=True)  # whose gain has a kernel for itself
    F.layer_norm(wide, weight=Tensor.ones(257, device=device)).sum().backward()
    x = get_device(device).from_host(keyed_rng(1, "naive").standard_normal((2, 3, 5, 4), "float32"))
    attention_naive(x, x, x, 0.5)
    layer_norm_naive(x[0, 0], x[0, 0, 0], x[0, 0, 1], 1e-5)
    softmax_naive(x, 0)
    get_device(device).synchronize()


def main() -> None:
    place = get_device("cuda")
    # Each array in memory of its own: in CuPy's pool an access beyond an array would hit another, and not be noticed.
    place.xp.cuda.set_allocator(None)
    with np.errstate(all="ignore"):
        call_every_kernel("cuda")


if __name__ == "__main__":
    sys.exit(main())
