"""The options that all training runs share: the learning rate of a step, and the optimizer."""

import dataclasses

import pytest

from tinygrad_lite.nn import LayerNorm, Linear, Module
from tinygrad_lite.optim import SGD, Adam, AdamW, cosine
from training.options import TrainOptions


def test_every_option_has_a_help_text_and_a_group():
    for field in dataclasses.fields(TrainOptions):
        assert len(field.metadata["help"]) > 10, field.name
        assert field.metadata["group"], field.name


def test_the_default_schedule_is_nanogpts_cosine():
    """With a warm-up of 100 steps, down to a tenth at step 2,000; test_optim.py tests the formulas of schedules."""
    rate = TrainOptions().learning_rate_at
    assert [rate(step) for step in range(2500)] == [cosine(step, 1e-3, 100, 2000, 1e-4) for step in range(2500)]
    for min_lr, end in ((None, 0.002), (0.0, 0.0), (0.01, 0.01)):  # a tenth unless it is given
        assert TrainOptions(learning_rate=0.02, min_lr=min_lr).learning_rate_at(2000) == end


def test_without_a_schedule_the_rate_is_constant():
    assert {TrainOptions(decay_lr=False).learning_rate_at(step) for step in (0, 1, 99, 100, 5000)} == {1e-3}


class Small(Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = Linear(2, 3), LayerNorm(3)


@pytest.mark.parametrize(("name", "kind"), [("adamw", AdamW), ("adam", Adam), ("sgd", SGD)])
def test_the_requested_optimizer_gets_its_settings(name, kind):
    options = TrainOptions(optimizer=name, beta1=0.7, beta2=0.8, weight_decay=0.3, learning_rate=0.5)
    optimizer = options.make_optimizer(Small())
    assert type(optimizer) is kind
    assert (optimizer.lr, optimizer.steps) == (0.5, 0)
    matrices, vectors = optimizer.param_groups
    for group in (matrices, vectors):
        assert group["momentum"] == 0.7 if kind is SGD else group["betas"] == (0.7, 0.8)
    assert (matrices["param_names"], matrices["weight_decay"]) == (["linear.weight"], 0.3)
    assert (vectors["param_names"], vectors["weight_decay"]) == (["linear.bias", "norm.weight", "norm.bias"], 0.0)
