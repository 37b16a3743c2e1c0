"""The learning rate over time: functions of the step, counted from 0."""

import math


def constant(step: int, learning_rate: float, warmup_iters: int = 0) -> float:
    """A linear rise over the first warmup_iters steps, then constant."""
    return learning_rate * min(1.0, (step + 1) / (warmup_iters + 1))


def cosine(step: int, learning_rate: float, warmup_iters: int, lr_decay_iters: int, min_lr: float) -> float:
    """A linear rise over warmup_iters steps, then half a cosine wave down to min_lr at lr_decay_iters.

    Reference: Loshchilov, Hutter 2017, eq. 5 (arXiv:1608.03983), without restarts; step for step as in nanoGPT.
    """
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    if step >= lr_decay_iters:
        return min_lr
    progress = (step - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1 + math.cos(math.pi * progress)) * (learning_rate - min_lr)


def inverse_square_root(step: int, learning_rate: float, warmup_iters: int) -> float:
    """A linear rise to learning_rate over warmup_iters steps, then falling as 1 / sqrt(step).

    Reference: Vaswani et al. 2017, eq. 3 (arXiv:1706.03762), where learning_rate is
    1 / sqrt(d_model * warmup_steps).
    """
    warmup = max(1, warmup_iters)
    return learning_rate * min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))


def trapezoid(
    step: int, learning_rate: float, warmup_iters: int, lr_decay_iters: int, min_lr: float, plateau: float = 0.4
) -> float:
    """A linear rise over warmup_iters steps, a plateau, then a linear fall to min_lr at lr_decay_iters.

    The fall begins at step plateau * lr_decay_iters, or after the rise if that is later. Unlike the cosine's, the rates
    before it do not depend on where the run ends, so one plateau serves runs of several lengths.

    References: Zhai et al. 2022, section 3.5 (arXiv:2106.04560); Hägele et al. 2024, section 3 (arXiv:2405.18392). Also
    known as WSD: warm-up, stable, decay.
    """
    if step < warmup_iters:
        return learning_rate * (step + 1) / (warmup_iters + 1)
    if step >= lr_decay_iters:
        return min_lr
    begin = max(warmup_iters, plateau * lr_decay_iters)
    progress = max(0.0, (step - begin) / (lr_decay_iters - begin)) if begin < lr_decay_iters else 0.0
    return learning_rate + progress * (min_lr - learning_rate)


# Those that train.py offers, by name. Their parameters have the names of its options.
SCHEDULES = {schedule.__name__: schedule for schedule in (cosine, trapezoid, inverse_square_root, constant)}
