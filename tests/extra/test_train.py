"""train.py --dry_run: what it prints is accurate, and it writes nothing."""

import re

import pytest

import train
from extra.gpt.config import GPTConfig
from extra.studies import trials
from gpt.model import GPT
from tests.test_train import SMALL, memory_of_a_step
from tests.tiny_runs import arguments, made_up_text
from training.corpora import fetch

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]


def test_a_dry_run_is_accurate_and_writes_nothing(workplace, ran, monkeypatch):
    for name in ("debian_files", "https_text"):
        monkeypatch.setattr(fetch, name, lambda *_: pytest.fail("a dry run fetches no corpus"))
    before = sorted(path.name for path in workplace.iterdir())
    words = ["goethe-bpe", "--dry_run", "--gradient_accumulation_steps=3", "--vocab_size=300", "--bias"]
    said = ran(train.main, *words)
    assert said.out == ""
    config = GPTConfig(300, block_size=64, n_layer=4, n_head=4, n_embd=128, bias=True, dropout=0.1)
    count = GPT(config).num_parameters()
    assert f"parameters       {count:,}\n" in said.err
    assert f"{4 * count * 4 / 1e6:.3g} MB weights, gradients and two moments" in said.err
    assert f"{config.activations(12) * 4 / 1e6:.3g} MB activations" in said.err
    assert "2,304 = 3 micro-steps x 12 sequences x 64 tokens" in said.err
    assert "2,000, evaluation every 250" in said.err
    schedule = dict(re.findall(r"^ +([\d,]+): (\S+)$", said.err, re.MULTILINE))
    assert list(schedule) == ["0", "100", "500", "1,000", "1,500", "2,000"]
    assert (schedule["100"], schedule["2,000"]) == ("0.001", "0.0001")
    assert sorted(path.name for path in workplace.iterdir()) == before


def test_a_dry_run_reads_an_available_text_and_measures_some_steps(ran, workplace):
    fetch.store("goethe", made_up_text(), {"source": "this test", "licence": "none"})
    said = ran(train.main, *arguments(text=None, dry_run=True)).err
    config = GPTConfig(len(set(made_up_text())) + 1, block_size=8, n_layer=1, n_head=2, n_embd=16)
    assert f"parameters       {GPT.blueprint(config).num_parameters():,}\n" in said
    assert f"an epoch is {-(-round(0.9 * len(made_up_text())) // 32)} steps" in said
    time = r"time +about \S+ s: 10 steps of \d+ ms and 4 evaluations of \S+ s, plus samples and checkpoints\n"
    assert re.search(time, said)
    assert not (workplace / "run").exists()


def test_a_dry_run_measures_no_step_that_takes_too_long_or_too_much_memory(ran, monkeypatch):
    long = arguments(dry_run=True, n_embd=128)
    monkeypatch.setattr(trials, "measure", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(trials, "free_memory", lambda device: 1 << 20)
    assert "not measured, because only 1.05 MB of memory is free\n" in ran(train.main, *long).err
    monkeypatch.setattr(trials, "TOO_LONG", 0.0)
    assert "not measured, because a step takes 0.0 s or more\n" in ran(train.main, *long).err


@pytest.mark.cpu_only("a GPU's kernels keep less")
def test_the_estimate_with_recompute_is_close_to_the_peak_of_a_step():
    """The peak is in the backward pass, when one block has been computed again; its gradients are not counted."""
    plain, config = (GPTConfig(80, **SMALL | {"n_layer": 6, "recompute": on}) for on in (False, True))
    _, most = memory_of_a_step(config)
    estimate = config.activations(4) * 4
    assert estimate < most < 1.35 * estimate
    assert most < 0.6 * plain.activations(4) * 4
