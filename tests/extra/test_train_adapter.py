"""--lora_rank and --freeze: a run that learns a part of a model, its small checkpoint, and what is done with it."""

import shutil
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sample
import train
from extra.adapters import merge
from extra.families import GPT as FAMILY
from extra.pretrained import export
from families import FAMILIES
from tests.tiny_runs import arguments, assert_resumes, losses, made_up_text, run_training, sampled, undone
from tinygrad_lite import Tensor
from tinygrad_lite.adapt import attach
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.quantize import quantize, weight_bytes
from training.checkpoint import load_checkpoint
from training.folder import RunFolder
from training.processes.processes import OneProcess
from training.start import read_setup

BASE = "base/best.safetensors"
IDS = np.arange(8)[None] % 20
FROM_BASE = dict.fromkeys(("n_layer", "n_head", "n_embd", "block_size")) | {"text": "other.txt", "init_from": BASE}


def adapt(*words: str, **changes: object) -> RunFolder:
    """Train an adapter of rank 2 of the base; a value of None leaves an option out."""
    settings = FROM_BASE | {"out_dir": "adapter", "lora_rank": 2, "workers": 1} | changes
    assert train.main([*arguments(**settings), *words]) == 0
    return RunFolder(settings["out_dir"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of a base and of an adapter, and their texts; made once and never changed."""
    folder = tmp_path_factory.mktemp("trained")
    for name, seed in (("text.txt", 1), ("other.txt", 3)):
        (folder / name).write_text(made_up_text(seed=seed), encoding="utf-8")
    with chdir(folder), undone():
        run_training(out_dir="base", n_layer=2, max_iters=20)
        adapt(dropout=0.0)
    return folder


@pytest.fixture(autouse=True)
def copied(trained, workplace):
    """A copy of these runs in the folder of each test."""
    shutil.copytree(trained, workplace, dirs_exist_ok=True)


def logits(*path: str) -> np.ndarray:
    return FAMILY.read(*map(Path, path)).make_model()(Tensor(IDS)).numpy()


def test_only_the_adapter_is_trained_and_saved(capsys):
    run = adapt("--overwrite", max_iters=20)
    said = capsys.readouterr().err
    whole, checkpoint = load_checkpoint(Path(BASE)), load_checkpoint(run.last, optimizer=True)
    learned, number = (sum(a.size for a in held.weights.values()) for held in (checkpoint, whole))
    assert f"trains {learned:,} of {learned + number:,} parameters ({100 * learned / (learned + number):.2g} %)" in said
    assert learned == 2 * 2 * (4 * (16 + 16) + 2 * (16 + 64))
    assert all("lora_" in name for name in checkpoint.weights)
    assert {name.partition(".")[2] for name in checkpoint.optimizer} == set(checkpoint.weights)
    assert checkpoint.base["path"] == BASE
    assert losses(run, "val_loss")[0] == loss_of(BASE)  # it begins as the base
    assert losses(run, "val_loss")[20] < losses(run, "val_loss")[0]


def loss_of(path: str) -> float:
    """The validation loss of a model on the other text."""
    folder = Path(path).stem + "-as-it-is"
    assert train.main(arguments(**FROM_BASE | {"init_from": path, "out_dir": folder, "max_iters": 0})) == 0
    return losses(RunFolder(folder), "val_loss")[0]


def test_an_adapter_samples_with_and_without_naming_its_base_and_merges(capsys):
    ways = ([BASE, "--adapter", "adapter/last.safetensors"], ["adapter"], [BASE, "--adapter", "adapter"])
    assert len({sampled(capsys, *words, "--greedy", "--max_new_tokens", 12).out for words in ways}) == 1
    assert merge.main([BASE, "adapter/last.safetensors", "merged.safetensors"]) == 0
    np.testing.assert_allclose(logits("merged.safetensors"), logits(BASE, "adapter/last.safetensors"), atol=1e-5)
    assert np.abs(logits("merged.safetensors") - logits(BASE)).max() > 1e-3
    assert loss_of("merged.safetensors") == pytest.approx(losses(RunFolder("adapter"), "val_loss")[10], abs=1e-5)


@pytest.mark.parametrize("kind", [None, "nf4"])
def test_a_stopped_run_resumes_bit_for_bit(kind):
    settings = {"dropout": 0.2, "lora_dropout": 0.1, "max_iters": 6, "quantize": kind}
    assert_resumes(*arguments(**FROM_BASE, **settings, out_dir=None, lora_rank=2, workers=1))


def test_several_processes_learn_the_same():
    """The frozen weights are the base's in each of them, floats and codes."""
    settings = {"dropout": 0.0, "dtype": "float64", "max_iters": 4, "quantize": "nf4"}
    weights = [load_checkpoint(adapt(out_dir=f"{n}", workers=n, **settings).last).weights for n in (1, 2)]
    for name in weights[0]:
        np.testing.assert_allclose(weights[0][name], weights[1][name], atol=1e-9)


# --- over quantized weights -----------------------------------------------------------------------------------------


def beside(kind: str, adapter: str) -> Module:
    """The base in this kind, with an adapter beside it."""
    trained = FAMILY.read(Path(BASE), Path(adapter), beside=True)
    model = trained.make_model()
    quantize(model, kind)
    attach(model, trained.changes)
    return model


def test_what_was_trained_over_quantized_weights_can_be_computed_exactly(capsys):
    run = adapt(out_dir="packed", dropout=0.0, quantize="nf4")
    checkpoint = load_checkpoint(run.last)
    assert checkpoint.base["quantize"] == "nf4"
    assert all("lora_" in name for name in checkpoint.weights)
    before = read_setup([*arguments(**FROM_BASE), "--dry_run"], FAMILIES)
    task = before.make_task()
    exact = beside("nf4", "packed/last.safetensors")
    assert f"{train.evaluate(task, exact, OneProcess()):.6g}" == f"{losses(run, 'val_loss')[10]:.6g}"
    folded, base = FAMILY.read(Path(BASE), run.last).make_model(), before.make_model(task.tokenizer)
    exact, folded, base = (model(Tensor(IDS)).numpy() for model in (exact, folded, base))
    assert 0 < np.abs(folded - exact).max() < np.abs(base - exact).max() / 100
    scores = []
    for words in (["--quantize=nf4"], []):
        score, said = sampled(capsys, "packed/last.safetensors", "--score=other.txt", *words)
        assert ("computes with exactly these" in said) == (not words)
        scores.append(score)
    assert scores[0] != scores[1]


def test_a_frozen_part_stays_as_it_is():
    run = adapt("--freeze", "blocks.0", "*norm*,token_embedding", lora_rank=None, out_dir="frozen", max_iters=2)
    before, after = load_checkpoint(Path(BASE)).weights, load_checkpoint(run.last).weights
    assert set(after) == {name for name in before if "0" not in name and "norm" not in name and "tok" not in name}
    whole = FAMILY.read(run.last).weights
    assert {name for name in before if (whole[name] == before[name]).all()} == set(before) - set(after)
    with pytest.raises(CheckpointError, match="as a whole, which is not a change of low rank"):
        export.main(["frozen", "exported"])


def test_a_dry_run_knows_what_learns(capsys):
    adapt("--dry_run", "--flops_per_second=1e12", out_dir="new")
    said = capsys.readouterr().err
    assert "\ntrained          1,152, 14 % of them" in said
    assert "adapters\n" in said
    assert f"{4 * (8000 + 3 * 1152) / 1000:.3g} kB weights, gradients and two moments of what learns" in said
    adapt("--dry_run", "--flops_per_second=1e12", out_dir="new", quantize="nf4")
    size = weight_bytes(beside("nf4", "adapter")) + 4 * 3 * 1152
    assert f"{size / 1000:.3g} kB weights, gradients and two moments of what learns" in capsys.readouterr().err
    assert not Path("new").exists()


def test_what_an_adapter_is_cannot_be_changed_later():
    for name, value, before in (("lora_rank", 4, 2), ("quantize", "nf4", None)):
        with pytest.raises(OptionError, match=f"cannot resume with --{name} {value}: the run in adapter has {before}"):
            train.main(["--resume", "--out_dir=adapter", f"--{name}={value}"])
    with pytest.raises(OptionError, match=r"is an adapter: fold it into its base first, .*extra\.adapters\.merge base"):
        adapt(init_from="adapter", out_dir="second")


def test_quantized_weights_are_for_the_cpu(monkeypatch):
    monkeypatch.setattr("training.folder.get_device", lambda name: SimpleNamespace(name="cuda"))
    monkeypatch.setattr("training.folder.check_precision", lambda *names: None)
    for refused in (
        lambda: adapt(out_dir="new", quantize="nf4", device="cuda"),
        lambda: sample.main(["base", "--quantize", "nf4"]),
    ):
        with pytest.raises(OptionError, match="--quantize nf4 is for the CPU: add --device cpu, or omit --quantize"):
            refused()


# --- another base, or none ----------------------------------------------------------------------------------------


def test_another_base_is_refused_and_a_missing_one_is_named():
    before = Path("adapter/last.safetensors").read_bytes()
    shutil.copytree("base", "moved")
    run_training(out_dir="base", n_layer=2, max_iters=1, overwrite=True)
    other = "was not trained on the weights of base.best.safetensors: its base was base/best.safetensors"
    for refused in (
        lambda: FAMILY.read(Path("adapter")),
        lambda: train.main(["--resume", "--out_dir=adapter", "--max_iters=12"]),
        lambda: merge.main([BASE, "adapter", "merged.safetensors"]),
    ):
        with pytest.raises(CheckpointError, match=other):
            refused()
    shutil.rmtree("base")
    with pytest.raises(CheckpointError, match=r"is an adapter of base/best.safetensors, which is not there: say"):
        train.main(["--resume", "--out_dir=adapter"])
    assert np.isfinite(logits("moved/best.safetensors", "adapter")).all()
    assert Path("adapter/last.safetensors").read_bytes() == before
    assert not Path("merged.safetensors").exists()
