"""A training run on a GPU: nobody waits, and a NaN between two looks at the numbers does no harm."""

import dataclasses
import math
import re

import numpy as np
import pytest

import train
from gpt.model import GPT
from tests.tiny_runs import arguments, losses, run_training
from tests.tinygrad_lite.test_workers import parts
from tinygrad_lite import Tensor, device
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.errors import UserError
from tinygrad_lite.run import RunFolder
from tinygrad_lite.workers import OneGPU, OneProcess, start_workers

pytestmark = pytest.mark.usefixtures("workplace")


class SickGPT(GPT):
    """Its loss is NaN at step 3."""

    def loss(self, batch):
        loss = super().loss(batch)
        _, *place = device._position.key  # (step, micro-step, worker) in training
        return loss * Tensor(-1.0, device=loss.device).log() if place[:1] == [3] else loss


def test_what_works_where(cuda):
    for settings, kind in (
        ({"device": cuda}, OneGPU),
        ({"device": cuda, "composed": True}, OneProcess),
        ({"device": cuda, "optimizer": "sgd"}, OneProcess),
        ({"device": cuda, "optimizer": "adam"}, OneProcess),
        ({"device": "cpu"}, OneProcess),
    ):
        with start_workers(*parts(workers=1, **settings)) as crew:
            assert type(crew) is kind
            assert crew.look_is_free == (kind is OneProcess)


def test_no_weight_changes_after_a_broken_step(cuda):
    weights = {}
    for kind, steps in ((GPT, 3), (SickGPT, 6)):
        options, task, model, optimizer = parts(workers=1, device=cuda)
        model.__class__ = kind
        with start_workers(options, task, model, optimizer) as crew:
            for step in range(steps):
                assert crew.gradients(step) == task.target_tokens(step)
                crew.clip(options.grad_clip)
                crew.update(1e-2)
            seen = crew.look()
        weights[kind] = model.state_dict(), optimizer.state_dict()
    assert seen.broken == 3
    assert math.isnan(seen.loss)
    for healthy, sick in zip(weights[GPT], weights[SickGPT], strict=True):
        assert all((healthy[name] == sick[name]).all() for name in healthy)


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 3}, {"grad_clip": 0.0}, {"grad_clip": 1e-3}])
def test_the_numbers_are_those_of_a_cpu(cuda, settings):
    found = []
    for name in ("cpu", cuda):
        options, task, model, optimizer = parts(workers=1, device=name, dtype="float64", **settings)
        with start_workers(options, task, model, optimizer) as crew:
            numbers = []
            for step in range(4):
                crew.gradients(step)
                crew.clip(options.grad_clip)
                numbers += crew.look()[:2]
                crew.update(1e-2)
            found.append((np.array(numbers), model.state_dict()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-10)
    for name, weight in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], weight, rtol=1e-7, atol=1e-9)


def test_training_looks_only_when_a_row_is_due(cuda, monkeypatch):
    """Each look makes Python wait; 12 updates with a row after every fourth, evaluated at 0 and 12."""
    looks, look = [], Guard.look
    monkeypatch.setattr(Guard, "look", lambda guard: looks.append(1) or look(guard))
    run_training(device=cuda, max_iters=12, eval_interval=12, log_interval=4)
    assert len(looks) == 5
    assert len(losses(RunFolder("run"))) == 3


def test_a_broken_step_is_named_and_the_run_goes_on_from_before(cuda, monkeypatch):
    run = {"device": cuda, "max_iters": 12, "eval_interval": 12, "log_interval": 6}
    with monkeypatch.context() as patch:
        patch.setattr(train, "FAMILIES", (dataclasses.replace(train.GPT, model=SickGPT),))
        with pytest.raises(UserError) as caught:
            run_training(**run)
    named = r"step 3: the loss is nan and the gradient.s norm nan; log made a NaN .* \(`.*log\(\)"
    assert re.match(named, str(caught.value))
    assert "--resume" in str(caught.value)
    assert train.main(arguments(**run, init_from="resume")) == 0
