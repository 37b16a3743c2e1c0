"""Checks of chapter 6."""

import numpy as np
from compare import same

from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.functional.attention import scaled_dot_product_attention_composed as reference
from tinygrad_lite.transformer import MultiHeadAttention


def _differ(a, b):
    """The largest difference; infinite if the shapes differ or a number is not finite."""
    a = np.asarray(a, float)
    return np.abs(a - b).max() if a.shape == b.shape and np.isfinite(a).all() else np.inf


def look_up(exercise):
    """Score of each key: dot product / √D. Subtract the largest score before exp. Then the weighted mean of rows."""
    rng = np.random.default_rng(0)
    for width, size in ((4, 1), (9, 1), (4, 100)):
        query, keys, values = size * rng.standard_normal(width), *rng.standard_normal((2, 5, width))
        if size > 1:
            keys = keys * 1e3
        right = reference(*(Tensor(a.reshape(1, 1, -1, width)) for a in (query, keys, values))).numpy()[0, 0, 0]
        scores = f"for D = {width} and scores of about {abs(keys @ query).max():.0g}"
        same(exercise.look_up(query, keys, values), right, scores, rtol=0, atol=1e-9)


def causal_attention(exercise):
    """Set the scores above the diagonal, not those on it, to -inf before the softmax: np.triu(..., 1)."""
    rng = np.random.default_rng(0)
    for size in (1.0, 1e7):  # with the latter, scores are beyond any finite number that might mark the future
        q, k, v = size * rng.standard_normal((3, 2, 2, 6, 4))
        q[..., 0, :] = -k[..., 0, :]
        before = np.asarray(exercise.causal_attention(q, k, v), float)
        assert before.shape == q.shape, f"the shape of your result is {before.shape}, it must be {q.shape}"
        assert np.isfinite(before).all(), "some numbers are not finite: each position must see at least itself"
        for changed in (k, v):
            changed[..., 3:, :] = size * rng.standard_normal(changed[..., 3:, :].shape)
            change = _differ(exercise.causal_attention(q, k, v)[..., :3, :], before[..., :3, :])
            name = "keys" if changed is k else "values"
            assert change == 0, f"other {name} at position 3 and later change the first three outputs by {change:.2g}"
        after, right = exercise.causal_attention(q, k, v), reference(*map(Tensor, (q, k, v)), is_causal=True).numpy()
        rows = [t for t in range(6) if _differ(after[..., t, :], right[..., t, :]) > 1e-9 * size]
        assert not rows, f"nothing leaks from the future, but the outputs at positions {rows} are wrong"


def multi_head(exercise):
    """Reshape to (B, T, H, D), then swap axes 1 and 2; the way back is the same in reverse, followed by Wo."""
    rng = np.random.default_rng(0)
    for n_head in (1, 3):
        manual_seed(0)
        module = MultiHeadAttention(12, n_head, bias=False).to("cpu", np.float64)
        x = rng.standard_normal((2, 5, 12))
        weights = [part.weight.numpy() for part in (module.query, module.key, module.value, module.output)]
        right = module(Tensor(x), is_causal=True).numpy()
        same(exercise.multi_head(x, *weights, n_head), right, f"with n_head = {n_head}", rtol=0, atol=1e-9)


def WEIGHTS(exercise):
    """For each sequence and head there is one weight for each pair of a query and a key."""
    module = MultiHeadAttention(6 * 64, 6)
    small = module.weights(Tensor(np.zeros((2, 16, 6 * 64), np.float32))).numel()  # of 2 sequences of 16 tokens
    right = 6 * small * (32 // 2) * (256 // 16) ** 2
    size = "small" if right > exercise.WEIGHTS else "large"
    assert right == exercise.WEIGHTS, f"{exercise.WEIGHTS} is too {size}"
