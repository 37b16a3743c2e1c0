"""Checks of chapter 18."""

import functools

import numpy as np
from compare import same
from update import Update

from tinygrad_lite import Tensor, manual_seed, nn
from tinygrad_lite.adapt import LoRA, low_rank_change
from tinygrad_lite.quantize import Kind, rounded_composed

_same = functools.partial(same, atol=1e-6)


def gradients(exercise):
    """With z = x A^T, y = s z B^T is a linear map of z, and z is one of x: dB needs z, and dA needs dz."""
    rng = np.random.default_rng(0)
    for rank, alpha in ((1, 1.0), (2, 3.0), (3, 0.5)):
        manual_seed(rank)
        model = LoRA(nn.Linear(5, 4, bias=False), rank, alpha).to("cpu", "float64")
        model.lora_B.weight.data[...] = rng.standard_normal((4, rank))
        x, dy = rng.standard_normal((6, 5)), rng.standard_normal((6, 4))
        (model(Tensor(x)) * Tensor(dy)).sum().backward()
        a, b = model.lora_A.weight, model.lora_B.weight
        da, db = exercise.gradients(x, a.numpy(), b.numpy(), alpha / rank, dy)
        _same(da, a.grad.numpy(), f"dA with rank {rank}")
        _same(db, b.grad.numpy(), f"dB with rank {rank}")


def fold(exercise):
    """Each adapter adds alpha / r B A, where r is the number of rows of its own A."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((4, 6))
    before, right = w.copy(), w.copy()
    adapters = []
    for rank, alpha in ((1, 2.0), (3, 1.5), (2, 8.0)):
        adapters.append((rng.standard_normal((rank, 6)), rng.standard_normal((4, rank)), alpha))
        right = right + low_rank_change(*adapters[-1][:2], alpha / rank)
        _same(exercise.fold(w, adapters), right, f"the matrix with {len(adapters)} adapters")
        assert (w == before).all(), "W has changed"
    _same(exercise.fold(w, []), before, "without any adapter")


def closest(exercise):
    """Keep the first columns of u, values of s and rows of v. The sum of squares of a matrix is that of its s."""
    rng = np.random.default_rng(0)
    for shape in ((5, 5), (4, 7), (7, 4)):
        update = rng.standard_normal(shape)
        for rank in (1, 3):
            matrix, share = exercise.closest(update, rank)
            _same(matrix, Update.of(update).cut(rank), f"rank {rank} of a matrix {shape}")
            _same(share, np.array(Update.of(update).share(rank)), f"the share of rank {rank} of a matrix {shape}")


def absmax(exercise):
    """A block's scale is its largest absolute value / 127. Divide by it, round to the nearest; mind a scale of 0."""
    w = np.random.default_rng(0).standard_normal(48) * np.repeat([1.0, 100.0, 0.01], 16)
    w[:8] = 0
    before = w.copy()
    for block in (4, 8, 16):
        codes, scales = exercise.absmax(w, block)
        assert np.asarray(codes).dtype == np.int8, f"your codes are {np.asarray(codes).dtype}, they must be int8"
        assert codes.shape == (48 // block, block), f"the codes have the shape {codes.shape}"
        assert np.shape(scales) == (48 // block,), f"the scales have the shape {np.shape(scales)}"
        read = codes * np.asarray(scales)[:, None]
        blocks = w.reshape(-1, block)
        right = rounded_composed(blocks, Kind(8, block=None))
        assert (np.abs(read - blocks) <= np.abs(blocks).max(1, keepdims=True) / 254 + 1e-12).all(), (
            f"in blocks of {block}, a number is off by more than absmax / 254"
        )
        _same(read, right, f"code times scale in blocks of {block}")
        assert np.abs(np.asarray(codes, int)).max() == 127, "the largest number of a block has the code 127 or -127"
    assert (w == before).all(), "the given numbers have changed"
