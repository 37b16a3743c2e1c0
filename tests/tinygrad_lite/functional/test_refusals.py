"""Inputs that do not fit: both versions of every operation refuse them in one sentence."""

import math

import numpy as np
import pytest

import families  # noqa: F401 (with which the operations of the shelf are registered, where that is)
from tinygrad_lite import Tensor
from tinygrad_lite.functional.registry import REGISTRY

pytestmark = [pytest.mark.every_device, pytest.mark.emulated_by_default]  # kernels check their inputs themselves


def ones(*shape):
    return Tensor.ones(*shape)


def attention(f, mask=None, t=5, **options):
    """A call with queries (2, 3, T, 4), keys and values (2, 3, 6, 4)."""
    key, value = ones(2, 3, 6, 4), ones(2, 3, 6, 4)
    return f(ones(2, 3, t, 4), key, value, None if mask is None else Tensor(mask), **options)


def loss(f, logits, targets, **options):
    return f(ones(*logits), Tensor(targets), **options)


def conv(f, x=(1, 3, 4, 4), weight=(2, 3, 3, 3), bias=None, **settings):
    return f(ones(*x), ones(*weight), None if bias is None else ones(*bias), **settings)


def rotary(f, shape, positions=(0, 1, 2)):
    return f(ones(*shape), Tensor([*positions]), (1.0, 0.3, 0.01))


NO_PROBABILITY = r"^dropout: p must be in \[0, 1\), not"
POOLING = [
    (lambda f: f(ones(3, 4, 4)), r"x must be \(B, C, H, W\) floats, not \(3, 4, 4\) of float32"),
    (lambda f: f(ones(1, 1, 4, 4), 5), r"a kernel of \(5, 5\), .* does not fit into pictures of \(4, 4\) with"),
    (lambda f: f(ones(1, 1, 4, 4), 3, padding=2), r"padding \(2, 2\) must be at most half of the kernel \(3"),
    (lambda f: f(ones(1, 1, 4, 4), 0.5), "kernel_size must be a whole number of at least 1, .*, not 0.5"),
]
FOUR, DIVISORS = (1, 4, 4, 4), "must divide the 4 channels of x and the 6 of the result"
NO_AXIS = [(lambda f, n=n: f(ones(2, 3), n), f"^max: there is no axis {n} in a tensor of 2 axes") for n in (2, 3, -3)]
NO_FIT = r"^attention: query \(B, H, T, D\), key and value .* do not fit: \("
NO_WIDTH = r"^attention: queries and keys of width 0 have nothing to compare: \(1, 2, 3, 0\), \(1, 2, 3, 0\)$"
NO_MASK = "^attention: mask must hold truth values or floats, not int64; write ids != pad"
NO_BROADCAST = r"^attention: a mask of shape \(5, 5\) does not broadcast to .* = \(2, 3, 5, 6\)"
# By operation: a call of a version of it, and what the sentence says behind the name, or all of it from ^ on.
REFUSED = {
    "avg_pool2d": POOLING,
    "max_pool2d": POOLING,
    "conv2d": [
        (lambda f: conv(f, (3, 4, 4)), r"x .* and weight .* have 4 axes, not \(3, 4, 4\) and \(2, 3, 3,"),
        (lambda f: conv(f, FOUR, (2, 4, 3, 3), groups=2), r".*in groups=2 needs a weight \(C_out, 2, .*, not \(2, 4,"),
        *((lambda f, n=n: conv(f, FOUR, (6, 1, 3, 3), groups=n), f"groups={n} {DIVISORS}") for n in (3, 4, 0)),
        (lambda f: conv(f, (1, 3, 4, 9), (2, 3, 7, 7), padding=1), r"a kernel of \(7, 7\), .*, does not fit into "),
        (lambda f: conv(f, bias=(3,)), r"weight .* needs a bias of shape \(2,\), not \(3,\)"),
        (lambda f: conv(f, padding="same"), "padding must be a whole number of at least 0, .*, not 'same'"),
    ],
    "cross_entropy": [
        (lambda f: loss(f, (3, 5), [0, 1]), r"logits \(3, 5\) need targets \(3,\), not \(2,\)"),
        (lambda f: loss(f, (2, 5), [0.0, 1.0]), r"targets must be integers, .*, or probabilities of shape \(2, 5\)"),
        (lambda f: f(ones(2, 3, 4), ones(2, 3, 4)), r"the classes of logits .*: write .* and targets.flatten\(0, -2\)"),
        (lambda f: f(ones(2, 4), ones(2, 4), ignore_index=0), "ignore_index 0 is a token, but the targets are probab"),
        (lambda f: loss(f, (2, 5), [0, 1], reduction="max"), "reduction must be 'mean', 'sum' or 'none', not 'max'"),
        (lambda f: loss(f, (2, 5), [0, 1], label_smoothing=1.5), r"label_smoothing must be in \[0, 1\], not 1.5"),
    ],
    "dropout": [(lambda f, p=p: f(ones(2, 5), p), NO_PROBABILITY) for p in (-0.1, 1.0, 1.5, math.nan)],
    "embedding": [(lambda f: f(Tensor([1.0]), ones(5, 2)), "ids must be integers, not float32")],
    "gelu": [(lambda f: f(ones(1), approximate="sigmoid"), "approximate must be 'none' or 'tanh', not 'sigmoid'")],
    "layer_norm": [
        (lambda f: f(ones(2, 4), weight=ones(3), bias=ones(4)), r"weight has shape \(3,\), x \(2, 4\) needs \(4,\)"),
        (lambda f: f(ones(2, 4), weight=ones(4), bias=ones(1)), r"bias has shape \(1,\), x \(2, 4\) needs \(4,\)"),
    ],
    "linear": [
        (lambda f: f(ones(2, 4), ones(3, 5)), r"x .* do not fit: \(2, 4\) and \(3, 5\)"),
        (lambda f: f(ones(), ones(3, 5)), r"x .* do not fit: \(\) and \(3, 5\)"),
        (lambda f: f(ones(2, 4), ones(3, 4), ones(4)), r"weight \(3, 4\) needs a bias of shape \(3,\), not \(4,\)"),
    ],
    "linear_gelu": [(lambda f: f(ones(2, 4), ones(8, 4), ones(4)), r"^linear: .* a bias of shape \(8,\), not \(4,\)")],
    "residual": [(lambda f: f(ones(2, 3), ones(1, 3)), r"x and part must have the same shape, not \(2, 3\) and ")],
    "rms_norm": [(lambda f: f(ones(2, 4), weight=ones(5)), r"weight has shape \(5,\), x \(2, 4\) needs \(4,\)")],
    "rotary": [
        (lambda f: rotary(f, (2, 3, 4)), r".*do not fit: \(2, 3, 4\) and \(3,\)"),
        (lambda f: rotary(f, (2, 3, 1, 6), [0, 1]), r".*do not fit: \(2, 3, 1, 6\) and \(2,\)"),
        (lambda f: rotary(f, (2, 3, 1, 6), [0.0, 1.0, 2.0]), "x must be floats and positions integers, not float32"),
        (lambda f: rotary(f, (2, 3, 1, 8)), r"x \(2, 3, 1, 8\) needs a frequency .* of its 8 numbers, not 3"),
    ],
    "scaled_dot_product_attention": [
        (lambda f: f(*[ones(1, 2, 3, 0)] * 3), NO_WIDTH),
        (lambda f: f(*[ones(2, 3, 4)] * 3), NO_FIT),
        (lambda f: f(ones(1, 2, 3, 4), *[ones(1, 2, 5, 3)] * 2), NO_FIT),
        (lambda f: attention(f, np.ones((5, 6), "int64")), NO_MASK),
        (lambda f: attention(f, np.ones((5, 5), bool)), NO_BROADCAST),
        *((lambda f, p=p: attention(f, dropout_p=p), NO_PROBABILITY) for p in (-0.1, 1.0)),
    ],
    "rnn": [
        (lambda f: f(ones(2, 3), ones(3, 3)), r"^rnn: x must be \(B, T, H\) with T and H of at least 1, not \(2, 3\)"),
        (lambda f: f(ones(2, 4, 3), ones(3, 4)), r"^rnn: x \(2, 4, 3\) needs a weight of shape \(3, 3\), not \(3, 4\)"),
        (lambda f: f(ones(2, 4, 3), ones(3, 3), None, ones(2, 3) > 0), r"^rnn: .* needs a mask of shape \(2, 4\)"),
        (lambda f: f(ones(2, 4, 3), ones(3, 3), None, ones(2, 4)), "^rnn: mask must hold truth values, not float"),
    ],
    "lstm": [(lambda f: f(ones(2, 4, 8), ones(8, 2), ones(2, 2)), r"^lstm: .* a state of shape \(2, 4\), not \(2,")],
    "long_conv": [(lambda f: f(ones(2, 5, 3), ones(4, 3)), r"x \(B, T, C\) and h \(T, C\) do not fit: \(2, 5, 3\)")],
    **dict.fromkeys(("softmax", "log_softmax"), NO_AXIS),
    "swiglu": [(lambda f: f(ones(2), ones(1)), r"gate and up must have the same shape, not \(2,\) and \(1,\)")],
}
# On a GPU, the host would have to wait for these numbers.
REFUSED_ON_THE_CPU = {
    "cross_entropy": [
        (lambda f, bad=bad: loss(f, (3, 5), [0, bad, 1]), f"target {bad} is outside the vocabulary of 5 tokens")
        for bad in (5, -1, 1000)
    ],
    "embedding": [
        (lambda f, ids=ids: f(Tensor(ids), ones(5, 2)), f"token {bad} is outside the table of 5 rows")
        for bad, ids in ((5, [0, 5]), (-1, [0, -1, 2]), (70_000, [[70_000]]))
    ],
}


def assert_refused(name, call, message):
    for version in (REGISTRY[name].composed, REGISTRY[name]):
        with pytest.raises(ValueError, match=message if message[0] == "^" else f"^{name}: {message}"):
            call(version)


def rows(table):
    found = [(name, *row) for name in table if name in REGISTRY for row in table[name]]
    return pytest.mark.parametrize(("name", "call", "message"), found)


@rows(REFUSED)
def test_what_does_not_fit_is_refused(name, call, message):
    assert_refused(name, call, message)


@pytest.mark.cpu_only("not checked on a GPU")
@rows(REFUSED_ON_THE_CPU)
def test_a_number_outside_a_table_is_refused(name, call, message):
    assert_refused(name, call, message)
