"""Checks of chapter 7."""

import numpy as np
from compare import same

from tinygrad_lite import Tensor, manual_seed
from tinygrad_lite.debug.gradcheck import GradientError, gradcheck
from tinygrad_lite.functional.layer_norm import layer_norm_composed as reference
from tinygrad_lite.nn import Linear, Module
from tinygrad_lite.tensor import node
from tinygrad_lite.transformer import Block, FeedForward


def layer_norm(exercise):
    """Mean and variance of each row alone (axis -1, keepdims); the variance divides by C; eps is under the root."""
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((2, 4))
    for shape, eps in (((4,), 1e-5), ((4, 4), 1e-5), ((2, 3, 4), 0.5)):
        x = 3 + 2 * rng.standard_normal(shape)
        right = reference(Tensor(x), weight=Tensor(weight), bias=Tensor(bias), eps=eps).numpy()
        what = f"for x of the shape {shape} and eps = {eps}"
        same(exercise.layer_norm(x, weight, bias, eps), right, what, rtol=0, atol=1e-9)


def rms_norm_backward(exercise):
    """Adding 1 to all numbers of x changes h now, but scaling x still does not. Means are taken over a row."""

    def normalise(x):
        r = 1 / np.sqrt((x.data**2).mean(-1, keepdims=True) + 0.1)
        h = x.data * r
        return node(h, (x,), lambda dh: (np.asarray(exercise.rms_norm_backward(dh.copy(), h.copy(), r)),), "rms_norm")

    rng = np.random.default_rng(0)
    for shape in ((3, 5), (4, 4)):
        try:
            gradcheck(normalise, [Tensor(rng.standard_normal(shape), requires_grad=True)])
        except GradientError as error:
            raise AssertionError(f"for x of the shape {shape}: {error}") from None


def block(exercise):
    """The feed-forward part gets the norm of the sum x + attention(...), and its result is added to that sum.

    The norms change only what the branches get.
    """

    class Mixer(Module):
        def __init__(self):
            super().__init__()
            self.map = Linear(4, 4)

        def forward(self, x):
            return self.map(x).tanh()

    manual_seed(0)
    ours = Block(Mixer(), FeedForward(4, 16), 4)
    rng = np.random.default_rng(0)
    for norm in (ours.mixer_norm, ours.mlp_norm):
        norm.weight.data[...] = rng.uniform(0.5, 2, 4)  # two different norms
    x = Tensor(rng.standard_normal((2, 3, 4)), dtype=np.float32)
    got = exercise.block(x, ours.mixer, ours.mlp, ours.mixer_norm, ours.mlp_norm)
    assert isinstance(got, Tensor), f"your result is a {type(got).__name__}, it must be a Tensor"
    same(got.numpy(), ours(x).numpy(), "the result", rtol=0, atol=1e-5)


def DEEP(exercise):
    """Variances of independent numbers add up; the norm divides by a deviation, the root of a variance."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(10_000)
    for _ in range(12 * 2):
        x += 2**0.5 * rng.standard_normal(10_000)
    assert round(x.std()) == exercise.DEEP, f"{exercise.DEEP} is not the factor"
