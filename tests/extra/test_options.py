"""Options of the shelf that change the learning rate, the optimizer, and what is kept."""

import dataclasses
import math

import pytest

from extra.gpt.options import GPTOptions
from extra.options import ShelfOptions
from tests.training.test_options import Small
from tinygrad_lite.nn import Embedding, Module
from tinygrad_lite.optim import SCHEDULES, Muon
from training.options import TrainOptions as CoreOptions


@dataclasses.dataclass
class TrainOptions(ShelfOptions, CoreOptions):
    """The options of train.py that all families have."""


NANOGPT = (
    "gradient_accumulation_steps batch_size learning_rate max_iters weight_decay beta1 beta2 grad_clip decay_lr "
    "warmup_iters lr_decay_iters min_lr eval_interval eval_iters log_interval out_dir init_from device dtype seed"
)


def test_the_names_are_those_of_nanogpt():
    assert set(NANOGPT.split()) <= {field.name for field in dataclasses.fields(GPTOptions)}


def test_schedules_have_the_settings_of_the_options():
    """test_optim.py tests the formulas of schedules."""
    rate = TrainOptions(schedule="trapezoid").learning_rate_at
    assert [rate(step) for step in (0, 100, 800, 1100, 2000)] == pytest.approx([1e-3 / 101, 1e-3, 1e-3, 7.75e-4, 1e-4])
    early = TrainOptions(lr_decay_iters=500).learning_rate_at  # the default schedule
    assert [early(300), early(500)] == pytest.approx([(1e-3 + 1e-4) / 2, 1e-4])
    ends = TrainOptions(schedule="trapezoid", plateau=0.5, lr_decay_iters=400, min_lr=0.0, warmup_iters=0)
    assert [ends.learning_rate_at(step) for step in (0, 200, 300, 400)] == [1e-3, 1e-3, 5e-4, 0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("sizes", [(0, 0, None), (0, 100, None), (5, 0, None), (5, 5, None), (5, 9, 3), (1, 0, 1)])
def test_no_combination_of_lengths_divides_by_zero(schedule, sizes):
    max_iters, warmup, decay = sizes
    options = TrainOptions(schedule=schedule, max_iters=max_iters, warmup_iters=warmup, lr_decay_iters=decay)
    for step in range(max_iters + 2):
        assert 0 < options.learning_rate_at(step) <= 1e-3
        assert math.isfinite(options.learning_rate_at(step))


def test_muon_and_its_adamw_follow_one_schedule():
    """Their rates differ by a factor; Muon has its own group beside nanoGPT's."""
    model = Module()
    model.blocks, model.token_embedding = [Small()], Embedding(4, 2)
    options = TrainOptions(optimizer="muon", beta1=0.7, beta2=0.8, weight_decay=0.3, learning_rate=0.5)
    optimizer = dataclasses.replace(options, muon_lr_factor=0.2, muon_momentum=0.6).make_optimizer(model)
    assert (type(optimizer), optimizer.lr) == (Muon, 0.5)
    matrices, tables, vectors = optimizer.param_groups
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.3, 0.0]
    assert (matrices["param_names"], matrices["muon_lr_factor"]) == (["blocks.0.linear.weight"], pytest.approx(0.2))
    assert (matrices["momentum"], tables["betas"]) == (0.6, (0.7, 0.8))
    assert (tables["param_names"], len(vectors["param_names"])) == (["token_embedding.weight"], 3)
