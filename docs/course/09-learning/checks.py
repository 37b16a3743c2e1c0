"""Checks of chapter 9."""

import math

import numpy as np
from compare import same

from tinygrad_lite import Tensor, optim
from tinygrad_lite import functional as F


def cross_entropy(exercise):
    """The loss is log Z - z_t, with log Z computed from z - max(z). The gradient is p - y; p too needs z - max(z)."""

    def answer(logits, target):
        with np.errstate(all="ignore"):  # what overflows is reported below
            loss, gradient = exercise.cross_entropy(logits.copy(), target)
        return float(loss), np.asarray(gradient)

    rng = np.random.default_rng(0)
    for logits in (np.array([0.0, 0.0, 0.0, 0.0]), 3 * rng.standard_normal(5), 3 * rng.standard_normal(7)):
        for target in (0, 3):
            loss, gradient = answer(logits, target)
            right = F.cross_entropy(Tensor(logits[None]), Tensor([target])).item()
            assert math.isclose(loss, right, rel_tol=1e-9), (
                f"for {logits.round(2)}, target {target}, the loss: yours is {loss:.6g}, it must be {right:.6g}"
            )
            assert gradient.shape == logits.shape, (
                f"your gradient has the shape {gradient.shape}, it must be {logits.shape}"
            )
            for place in range(len(logits)):
                nudge = 1e-5 * (np.arange(len(logits)) == place)
                slope = (answer(logits + nudge, target)[0] - answer(logits - nudge, target)[0]) / 2e-5
                assert abs(gradient[place] - slope) < 1e-6, (
                    f"for {logits.round(2)}, target {target}, component {place} of the gradient: "
                    f"yours is {gradient[place]:.4g}, it must be {slope:.4g}, the measured slope"
                )
    for logits in (np.array([1000.0, 999.0]), np.array([-1000.0, -1001.0]), np.array([0.0, 900.0])):
        loss, gradient = answer(logits, 0)
        right = F.cross_entropy(Tensor(logits[None]), Tensor([0])).item()
        assert math.isclose(loss, right, rel_tol=1e-9), (
            f"for logits {logits} and target 0 the loss: yours is {loss:.6g}, it must be {right:.6g}"
        )
        assert np.isfinite(gradient).all(), f"for logits {logits} and target 0 the gradient is {gradient}"


def adamw(exercise):
    """Both averages first; then m' and v' with powers of `step`; eps is added after the root; the old w decays."""
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    cases = [  # what the case is about, decay, gradients
        ("one update, without decay", 0.0, [-0.5]),
        ("three updates, without decay", 0.0, [1.0, -3.0, 0.2]),
        ("a gradient as small as eps", 0.0, [1e-8]),
        ("two updates with weight decay", 0.3, [2.0, 1.0]),
    ]
    for about, decay, gradients in cases:
        w, m, v = 1.5, 0.0, 0.0
        right = [Tensor([x], dtype="float64") for x in (w, m, v)]
        for step, g in enumerate(gradients, start=1):
            w, m, v = exercise.adamw(w, g, m, v, step, **options, decay=decay)
            tensors = (right[0], Tensor([g], dtype="float64"), *right[1:])
            optim.adamw.composed(*tensors, step, *options.values(), decay)
        for name, mine, reference in zip("mvw", (m, v, w), (right[1], right[2], right[0]), strict=True):
            assert math.isclose(mine, reference.item(), rel_tol=1e-9), (
                f"{about}, {name}: yours is {mine:.8g}, it must be {reference.item():.8g}"
            )


def clip(exercise):
    """The global norm is the root of the sum of all squares in all arrays; one factor for all; never scale up."""
    rng = np.random.default_rng(0)
    cases = [  # what the case is about, gradients, limit
        ("a norm of 5 with the limit 1", [np.array([3.0]), np.array([4.0])], 1.0),
        ("a norm below the limit", [np.array([0.3]), np.array([0.0, 0.4])], 1.0),
        ("one large and one small gradient", [np.array([10.0, 0.0]), np.array([0.1])], 1.0),
        ("random matrices", [rng.standard_normal((3, 4)), rng.standard_normal((2, 5))], 0.7),
        ("gradients that are all 0", [np.zeros(2), np.zeros(3)], 1.0),
    ]
    for about, gradients, limit in cases:
        parameters = [Tensor(np.zeros(g.shape), requires_grad=True) for g in gradients]
        optimizer = optim.SGD(parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = Tensor(gradient.copy())
        optimizer.clip_grad_norm(limit)
        with np.errstate(all="ignore"):
            clipped = exercise.clip([g.copy() for g in gradients], limit)
        assert len(clipped) == len(gradients), f"yours are {len(clipped)} gradients, it must be {len(gradients)}"
        for number, (mine, parameter) in enumerate(zip(clipped, parameters, strict=True)):
            same(mine, parameter.grad.numpy(), f"{about}, gradient {number}", rtol=1e-6, atol=0)


def MEAN_LOSS(exercise):
    """Multiply each mean by its share of all target tokens, then add."""
    losses = np.repeat([2.0, 4.0], [30, 10])  # of each token
    logits = np.stack([np.zeros(40), np.log(np.expm1(losses))], axis=1)  # which give token 0 these losses
    right = F.cross_entropy(Tensor(logits), Tensor(np.zeros(40, int))).item()
    assert math.isclose(exercise.MEAN_LOSS, right), f"{exercise.MEAN_LOSS} is not the mean of the 40 losses"
