"""Tiny models that train for a few steps as in train.py, for the tests of the kernels.

As a program it trains one of each family on the emulated GPU, lets the GPT write, and prints a hash of all results:

    python -m tests.tinygrad_lite.cuda.tiny_training
"""

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

import gpt.fast.step_cuda  # noqa: F401 (which registers itself as a fast version of a GPT)
from gpt.model import GPT
from seq2seq.model import Seq2Seq
from tests.gpt.combined_settings import QWEN, SPEED_RUN
from tests.gpt.configs import GPTConfig, Seq2SeqConfig, has
from tinygrad_lite import Tensor
from tinygrad_lite.cuda.graph import Repeated
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.nn import Module
from tinygrad_lite.optim import AdamW, Muon, decay_groups, muon_groups
from tinygrad_lite.precision import precision
from tinygrad_lite.random import keyed_rng, random_key

TOKENS = 13
SHAPE = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 8, "dropout": 0.0}


def heads(width: int) -> dict[str, int]:
    """Settings of heads of an even width, whatever the width of the model."""
    narrow = {"head_dim": width // 4 * 2}
    return narrow if has(narrow) else {"n_head": 1}


def tiny_gpt(device: str, dtype: str = "float32", **changes: Any) -> GPT:
    with random_key(1):
        return GPT(GPTConfig(**SHAPE | {"vocab_size": TOKENS} | changes)).to(device, dtype)


def tiny_seq2seq(device: str, dtype: str = "float32", **changes: Any) -> Seq2Seq:
    settings = SHAPE | {"vocab_size": TOKENS, "pad": 0, "bos": 1, "eos": 2} | changes
    with random_key(1):
        return Seq2Seq(Seq2SeqConfig(**settings)).to(device, dtype)


def batch_of(model: Module, device: str, step: int) -> tuple[Tensor, ...]:
    """Something to learn: each token is 1 or 2 above the previous one; a translation is the reversed source."""
    rng = keyed_rng(2, "tiny batch", step)
    rows = (rng.integers(0, 10, (4, 1)) + rng.integers(1, 3, (4, 8)).cumsum(1)) % 10 + 3
    if isinstance(model, GPT):
        ids, targets = rows[:, :-1], rows[:, 1:]
        return Tensor(ids.copy(), device=device), Tensor(targets.copy(), device=device)
    source, target = rows[:, :6].copy(), np.ones((4, 8), np.int64)  # <bos>, six tokens, <eos>
    target[:, 1:-1], target[:, -1] = source[:, ::-1], 2
    source[0, 3:], target[0, 4], target[0, 5:] = 0, 2, 0  # one sentence is shorter, and padded
    target[0, 1:4] = source[0, 2::-1]
    return Tensor(source, device=device), Tensor(target, device=device)


def train(
    model: Module,
    device: str,
    steps: int,
    lr: float = 3e-3,
    use_muon: bool = False,
    micro_steps: int = 1,
    repeated: Repeated | None = None,
    changed: Callable = lambda step, parts: (parts, nullcontext()),
) -> list[float]:
    """The losses of N updates, with gradients clipped as in train.py; on a GPU without reading the numbers.

    `repeated` records and replays the passes; `changed` gives the parts of a step, and a context around its passes.
    """
    optimizer = Muon(muon_groups(model, 0.1), lr) if use_muon else AdamW(decay_groups(model, 0.1), lr)
    losses = []
    guard = Guard(optimizer.memory.values.data) if device == "cuda" else None
    optimizer.guard = guard.numbers if guard else None
    for step in range(steps):
        numbers = range(step * micro_steps, (step + 1) * micro_steps)
        parts = [(batch_of(model, device, number), 1 / micro_steps) for number in numbers]
        (parts, around), found = changed(step, parts), []
        optimizer.zero_grad()
        with around:
            for micro_step, (batch, share) in (
                repeated.passes(parts, optimizer, step, found) if repeated else enumerate(parts)
            ):
                with repeated.recorded() if repeated else nullcontext(), random_key(3, step, micro_step):
                    loss = model.loss(batch) * share
                    loss.backward()
                    found.append(loss.detach())
        loss = sum(found[1:], found[0]).clone()  # the next replay writes those found again
        if guard:
            guard.judge(found, optimizer.gather_gradients(), 1.0, step)
        else:
            optimizer.clip_grad_norm(1.0)
        optimizer.step()
        losses.append(loss)
    return [loss.item() for loss in losses]


def written(model: GPT) -> np.ndarray:
    """The log-probabilities of three more tokens for a single text and for several."""
    model.eval()
    found = []
    for rows in (1, 5):
        _, state = model.start(np.full((rows, 2), 3))
        for token in (4, 5, 6):
            log_probs, state = model.step(np.full(rows, token), state)
            found.append(log_probs)
    return np.concatenate(found)


def fence(start: int, end: int) -> None:
    """Let AddressSanitizer report any access to these bytes."""
    ctypes.CDLL(None).__asan_poison_memory_region(ctypes.c_void_p(start), ctypes.c_size_t(end - start))


def main() -> None:
    from tests import standin
    from tests.emulator.cupy_on_cpu import emulated_cuda

    if "LD_PRELOAD" in os.environ:
        standin.fence = fence
    found, models = hashlib.sha256(), [(tiny_gpt, {}), (tiny_seq2seq, {})]
    models += [(tiny_gpt, modern) for modern in (QWEN, SPEED_RUN) if has(modern)]
    with emulated_cuda() as device:
        for width in (64, 16, 6):  # a width for flash attention, packs of 4, and single numbers
            for numbers in ("float32", "bfloat16"):
                for make, modern in models:
                    settings = {"n_embd": width, "dropout": 0.1} | (heads(width) if modern else {})
                    model = make(device, **modern | settings)
                    with precision(numbers):
                        losses = train(model, device, 2, use_muon=bool(modern))
                    found.update(np.array(losses))
                    for array in model.state_dict().values():
                        found.update(array)
                    if isinstance(model, GPT):
                        with precision(numbers):
                            found.update(written(model))
    print(found.hexdigest())


if __name__ == "__main__":
    sys.exit(main())
