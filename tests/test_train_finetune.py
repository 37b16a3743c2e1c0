"""--init_from PATH: a run that starts from pretrained weights."""

from pathlib import Path

import numpy as np
import pytest

import train
from tests.tiny_runs import arguments, losses, made_up_text, run_training
from tinygrad_lite.errors import OptionError
from training.checkpoint import load_checkpoint
from training.folder import RunFolder
from training.origin import name_of

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]


def finetune(*words: str, **changes: object) -> RunFolder:
    """Start from out/first/best with another seed, without naming any shape."""
    shape = dict.fromkeys(("n_layer", "n_head", "n_embd", "block_size"))
    settings = {"out_dir": "second", "init_from": "first/best.safetensors", "learning_rate": 1e-3} | changes
    assert train.main([*arguments(**shape | settings), *words]) == 0
    return RunFolder(settings["out_dir"] or "out/first-finetuned")


# --- from one of our checkpoints ------------------------------------------------------------------------------


@pytest.fixture
def first(workplace):
    """The run from whose weights others start."""
    return run_training(out_dir="first", eval_iters=0)


def test_a_run_starts_with_the_other_weights_and_a_new_optimizer():
    first = run_training(out_dir="first", max_iters=40)
    second = finetune(max_iters=6)
    best = load_checkpoint(first.best)
    assert losses(second, "val_loss")[0] == losses(first, "val_loss")[best.step]  # 6 digits, before any step
    assert losses(second, "val_loss")[6] < losses(first, "val_loss")[0]
    checkpoint = load_checkpoint(second.last)
    assert checkpoint.step == 6
    assert checkpoint.tokenizer == load_checkpoint(first.last).tokenizer
    assert set(losses(second)) == set(range(1, 7))


def test_without_a_folder_it_is_named_after_its_origin_and_resumes(capsys):
    run_training(out_dir="first", bias=True, positions="sinusoidal", activation="gelu_tanh", zero_init=True)
    second = finetune(out_dir=None, max_iters=4)
    assert second.last == Path("out/first-finetuned/last.safetensors")
    assert load_checkpoint(second.last).model["zero_init"]
    assert train.main(["--resume", "--out_dir=out/first-finetuned", "--max_iters=6"]) == 0
    assert load_checkpoint(second.last).step == 6
    with pytest.raises(OptionError, match="already holds"):
        finetune(out_dir=None, max_iters=4)


def test_the_checkpoints_tokenizer_is_used_and_unknown_characters_are_counted(first, workplace, capsys):
    text = made_up_text(seed=3).replace("Mensch", "Mönch") + "x€€y€"
    (workplace / "other.txt").write_text(text, encoding="utf-8")
    finetune(text="other.txt")
    said = capsys.readouterr().err
    assert "warning: 5 characters of the text are unknown" in said
    assert "'€' 3, 'x' 1, 'y' 1" in said
    assert load_checkpoint(Path("second/last.safetensors")).tokenizer == load_checkpoint(first.last).tokenizer


def test_another_shape_is_refused_by_name(first):
    conflicts = "n_layer=2 block_size=9 bias tokenizer=byte vocab_size=99 positions=sinusoidal activation=relu"
    for conflict in conflicts.split():
        name = conflict.partition("=")[0]
        reason = rf"--{name} \w+ does not fit the weights of first.best.safetensors, which have"
        with pytest.raises(OptionError, match=reason):
            finetune(f"--{conflict}")
    assert not Path("second").exists()


def test_the_same_shape_may_be_given_but_a_named_preset_must_match(first):
    finetune("--n_layer=1", "--n_embd=16", "--tokenizer=char", "--dropout=0.1")
    with pytest.raises(OptionError, match="--block_size 256 does not fit"):
        finetune("baby-gpt", out_dir="third")


def test_a_shorter_context_uses_part_of_the_positions(first):
    second = finetune("--block_size=5", max_iters=0)
    name = "position_embedding.weight"
    before, after = (load_checkpoint(run.best).weights for run in (first, second))
    assert after[name].shape == (5, 16)
    np.testing.assert_array_equal(after[name], before[name][:5])


ORIGINS = [("out/goethe/best.safetensors", "goethe"), ("gpt2/", "gpt2"), ("a/b", "b"), ("/", "gpt")]


@pytest.mark.parametrize(("origin", "name"), ORIGINS)
def test_a_run_is_named_after_its_origin(origin, name):
    assert name_of(Path(origin)) == name
