"""Every operation that PyTorch has too: the same results and gradients, in the cases of version_cases.py."""

import numpy as np
import pytest

from tests.places import here
from tests.tinygrad_lite.functional.version_cases import CASES, tensors
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import REGISTRY

torch = pytest.importorskip("torch")
theirs = torch.nn.functional

pytestmark = [pytest.mark.torch, pytest.mark.every_device]


def attention(query, key, value, mask=None, is_causal=False, scale=None):
    t, s = query.shape[-2], key.shape[-2]
    allowed = torch.ones(t, s, dtype=bool).tril(s - t) if is_causal else torch.ones(t, s, dtype=bool)
    if mask is None:
        mask = allowed
    else:
        mask = mask & allowed if mask.dtype == torch.bool else torch.where(allowed, mask, -torch.inf)
        mask = mask.expand(*query.shape[:-1], s)
    return theirs.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def cross_entropy(logits, targets, **options):
    flat = targets.reshape(-1, logits.shape[-1]) if targets.is_floating_point() else targets.long().flatten()
    loss = theirs.cross_entropy(logits.reshape(-1, logits.shape[-1]), flat, **options)
    return loss.reshape(logits.shape[:-1]) if options.get("reduction") == "none" else loss


def rotary(x, positions, frequencies):
    """The code for Llama, in which the axis of heads precedes that of positions."""
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    angles = positions[..., None] * torch.tensor(frequencies, dtype=torch.float64)
    angles = (angles if positions.ndim == 2 else angles[None]).repeat(1, 1, 2)
    x, _ = llama.apply_rotary_pos_emb(x.transpose(1, 2), x.transpose(1, 2), angles.cos(), angles.sin())
    return x.transpose(1, 2)


def recurrence(cell, parts):
    """The states of one of torch's cells, whose own map of the input is the identity."""

    def run(x, weight, state=None, mask=None):
        width = weight.shape[1]
        now = torch.zeros(len(x), parts * width, dtype=x.dtype) if state is None else state
        states, identity = [], torch.eye(x.shape[2], dtype=x.dtype)
        for t in range(x.shape[1]):
            given = now if parts == 1 else now.split(width, 1)
            new = cell(x[:, t], given, identity, weight)
            new = new if parts == 1 else torch.cat(new, 1)
            now = new if mask is None else torch.where(mask[:, t, None], new, now)
            states.append(now)
        return torch.stack(states, 1)

    return run


def long_conv(x, h):
    """Depthwise convolution with filters turned around, which torch's correlations need, behind T - 1 zeros."""
    steps, channels = h.shape
    rows = theirs.pad(x.transpose(1, 2), (steps - 1, 0))
    return theirs.conv1d(rows, h.flip(0).T[:, None], groups=channels).transpose(1, 2)


THEIRS = {
    "linear": lambda x, weight, bias=None: theirs.linear(x, weight, bias),
    "linear_gelu": lambda x, weight, bias=None, approximate="none": theirs.gelu(
        theirs.linear(x, weight, bias), approximate=approximate
    ),
    "layer_norm": lambda x, weight, bias=None, eps=1e-5: theirs.layer_norm(x, x.shape[-1:], weight, bias, eps),
    "rms_norm": lambda x, weight=None, eps=1e-5: theirs.rms_norm(x, x.shape[-1:], weight, eps),
    "gelu": lambda x, approximate: theirs.gelu(x, approximate=approximate),
    "relu_squared": lambda x: theirs.relu(x).square(),
    "swiglu": lambda gate, up: theirs.silu(gate) * up,
    "softmax": lambda x, axis=-1: theirs.softmax(x, axis),
    "log_softmax": lambda x, axis=-1: theirs.log_softmax(x, axis),
    "scaled_dot_product_attention": attention,
    "cross_entropy": cross_entropy,
    "embedding": lambda weight, ids: theirs.embedding(ids.long(), weight),
    "conv2d": lambda x, weight, bias=None, **settings: theirs.conv2d(x, weight, bias, **settings),
    "avg_pool2d": lambda x, kernel_size=2, **settings: theirs.avg_pool2d(x, kernel_size, **settings),
    "max_pool2d": lambda x, kernel_size=2, **settings: theirs.max_pool2d(x, kernel_size, **settings),
    "rotary": rotary,
    "rnn": recurrence(torch.rnn_tanh_cell, 1),
    "lstm": recurrence(torch.lstm_cell, 2),
    "long_conv": long_conv,
    "exclude": lambda y, v: y - (y * v).sum(-1, keepdim=True) / ((v * v).sum(-1, keepdim=True) + 1e-6) * v,
}
DIFFERENT = {  # what PyTorch refuses, or answers with NaN
    ("softmax", "minus infinity"),
    ("cross_entropy", "mean, all ignored"),
    ("cross_entropy", "no rows"),
    ("conv2d", "no filters"),
    ("long_conv", "no positions"),
}
ALIKE = {
    (name, case): arguments
    for name in THEIRS
    for case, arguments in CASES[name].items()
    if (name, case) not in DIFFERENT and "dropout_p" not in arguments
}


@pytest.mark.parametrize(("name", "case"), ALIKE)
def test_torch_agrees(name, case):
    inputs = tensors(ALIKE[name, case], np.float64, device=here())
    copies = {
        key: torch.tensor(x.numpy().copy(), requires_grad=x.requires_grad) if isinstance(x, Tensor) else x
        for key, x in inputs.items()
    }
    y = REGISTRY[name](**inputs)
    expected = THEIRS[name](**copies)
    dy = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(Tensor(dy))
    expected.backward(torch.tensor(dy))
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    for key, x in inputs.items():
        if isinstance(x, Tensor) and x.requires_grad:
            np.testing.assert_allclose(x.grad.numpy(), copies[key].grad.numpy(), rtol=1e-11, atol=1e-12)
