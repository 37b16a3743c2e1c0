"""A training run on a GPU: Python does not wait, and a NaN before the numbers are read does no harm."""

import math
import re

import numpy as np
import pytest

import train
from families import FAMILIES
from gpt.model import GPT
from tests.tiny_runs import arguments, losses, run_training
from tests.training.processes.test_workers import parts, train_on
from tinygrad_lite import Tensor
from tinygrad_lite.cuda import dropout
from tinygrad_lite.cuda.guard import Guard
from tinygrad_lite.errors import UserError
from tinygrad_lite.random import draw_position
from training.folder import RunFolder
from training.processes.processes import OneGPU, OneProcess
from training.processes.workers import start_processes

pytestmark = pytest.mark.usefixtures("workplace")


class SickGPT(GPT):
    """Its loss is NaN at step 3."""

    def loss(self, batch):
        loss = super().loss(batch)
        _, *place = draw_position()[0]  # (step, micro-step, worker) in training
        if not place:
            return loss
        step = Tensor(place[0], device=loss.device)
        if loss.device == "cuda" and dropout.step_at is not None:  # the number is on the GPU, for all replays
            step = Tensor.wrap(dropout.step_at.astype(np.int64)[0])
        return loss * ((step == 3).where(-1.0, 1.0).log() + 1)


def test_the_guard_is_used_only_for_fused_adamw_and_muon_on_a_gpu(cuda):
    for settings, kind in (
        ({"device": cuda}, OneGPU),
        ({"device": cuda, "optimizer": "muon"}, OneGPU),
        ({"device": cuda, "optimizer": "sgd"}, OneProcess),
        ({"device": "cpu"}, OneProcess),
    ):
        with start_processes(train.only_updates, *parts(workers=1, **settings)) as comm:
            assert type(comm) is kind
            assert (comm.numbers(wait=False) is None) == (kind is OneGPU)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_no_weight_changes_after_a_broken_step(optimizer, cuda, monkeypatch):
    monkeypatch.setattr(train, "check_finite", lambda *_: None)
    weights = {}
    for kind, steps in ((GPT, 3), (SickGPT, 6)):
        options, task, model, updater = parts(
            workers=1, device=cuda, max_iters=steps, decay_lr=False, learning_rate=1e-2, optimizer=optimizer
        )
        model.__class__ = kind
        with start_processes(train.only_updates, options, task, model, updater) as comm:
            train.only_updates(options, task, model, updater, comm)
            seen = comm.numbers()
        weights[kind] = model.state_dict(), updater.state_dict()
        assert weights[kind][1].pop("step") == steps  # Python also counts the steps that changed nothing
    assert seen.step == 3
    assert math.isnan(seen.loss)
    for healthy, sick in zip(weights[GPT], weights[SickGPT], strict=True):
        assert all((healthy[name] == sick[name]).all() for name in healthy)


SETTINGS = [{"gradient_accumulation_steps": 3}, {"grad_clip": 0.0}, {"optimizer": "muon", "grad_clip": 1e-3}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_numbers_equal_those_of_a_cpu(cuda, settings):
    found = []
    for name in ("cpu", cuda):
        how = {"workers": 1, "device": name, "dtype": "float64", "learning_rate": 1e-2, **settings}
        model, _, numbers = train_on(how, 4)
        found.append((np.array(numbers), model.state_dict()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-10)
    for name, weight in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], weight, rtol=1e-7, atol=1e-9)


def test_training_reads_numbers_only_when_a_row_is_due(cuda, monkeypatch):
    """Reading a number blocks Python. Here: 12 updates, a row after every fourth, evaluations at 0 and 12."""
    readings, read = [], Guard.read
    monkeypatch.setattr(Guard, "read", lambda guard: readings.append(1) or read(guard))
    monkeypatch.setattr(FAMILIES["gpt"].options, "log_interval", 4)  # the default, where it is no option
    run_training(device=cuda, max_iters=12, eval_interval=12, log_interval=4)
    assert len(readings) == 5
    assert len(losses(RunFolder("run"))) == 3


def test_a_broken_step_is_named_and_the_run_resumes_before_it(cuda, monkeypatch):
    run = {"device": cuda, "max_iters": 12, "eval_interval": 12, "log_interval": 6}
    with monkeypatch.context() as patch:
        patch.setattr(type(FAMILIES["gpt"]), "model", SickGPT)
        with pytest.raises(UserError) as caught:
            run_training(**run)
    named = r"step 3: the loss is nan and the gradient.s norm nan; log produced a NaN .* \(`.*log\(\)"
    assert re.match(named, str(caught.value))
    assert "--resume" in str(caught.value)
    assert train.main(arguments(**run, init_from="resume")) == 0
