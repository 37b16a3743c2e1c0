"""Distillation: targets are mixed as the formula says; runs with teachers end, resume and refuse as others do."""

import json
from pathlib import Path

import numpy as np
import pytest

from extra.families import GPT
from extra.gpt.data import MixedTask
from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from extra.pairs.teachers import TaughtTask
from gpt.data import prepare
from tests.gpt.saved_models import saved_gpt
from tests.tiny_runs import arguments, assert_resumes
from tinygrad_lite import functional as F
from training.checkpoint import load_checkpoint

TEACHERS = ["one.safetensors", "two.safetensors"]


@pytest.fixture
def teachers(workplace):
    """Two GPTs with random weights, as if trained on the text of the tiny runs, with dropout."""
    data = prepare(GPTOptions.of(text=["text.txt"]))
    for step, name in enumerate(TEACHERS, start=5):
        saved_gpt(Path(name), data.tokenizer, step, data.corpus.sha256, block_size=8, dropout=0.5)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_loss_is_that_of_the_text_and_that_of_the_teachers_in_their_shares(share, teachers):
    options = GPTOptions.of(text=["text.txt"], block_size=8, batch_size=4, teachers=TEACHERS, teachers_share=share)
    mixed, plain = map(GPT.make_task, (options, GPTOptions.of(text=["text.txt"], block_size=8, batch_size=4)))
    assert (type(mixed), type(plain)) == (TaughtTask, MixedTask)
    ((ids, distributions), part), ((same_ids, targets), same_part) = (next(t.batches(3)) for t in (mixed, plain))
    np.testing.assert_array_equal(ids.numpy(), same_ids.numpy())
    assert part == same_part
    np.testing.assert_allclose(distributions.numpy().sum(-1), 1, rtol=1e-6)
    models = [load_trained(Path(name)).make_model() for name in TEACHERS]
    student = models[0]
    of_text = student.loss((ids, targets)).item()
    q = sum(F.softmax(model(ids)).numpy() for model in models) / 2  # without dropout
    of_teachers = -(q * F.log_softmax(student(ids)).numpy()).sum(-1).mean()
    expected = (1 - share) * of_text + share * of_teachers
    assert student.loss((ids, distributions)).item() == pytest.approx(expected, rel=1e-5)
    ((_, held_out), _), *_ = mixed.validation_batches()
    assert held_out.dtype == np.int64  # evaluations ask about the text alone


def test_a_resumed_run_has_the_same_teachers(teachers):
    whole = assert_resumes(*arguments(teachers=TEACHERS[0], dropout=0.1, out_dir=None), stop=5)
    assert json.loads(whole.options.read_text())["teachers"] == [str(Path(TEACHERS[0]).resolve())]
    assert "teachers" not in load_checkpoint(whole.last).training
