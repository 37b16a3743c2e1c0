"""--init_from FOLDER: a run that starts from weights in GPT-2's layout."""

import pytest

import sample
import train
from tests.extra.pretrained.gpt2_folders import byte_folder
from tests.test_train import finetune
from tests.tiny_runs import losses, sampled
from tinygrad_lite.errors import CheckpointError
from training.checkpoint import load_checkpoint

pytestmark = [pytest.mark.usefixtures("workplace"), pytest.mark.every_device]


def test_gpt2_generates_and_can_be_trained_further(capsys):
    folder = byte_folder("pretrained", n_inner=20, layer_norm_epsilon=1e-4)
    out, err = sampled(capsys, folder, "--start", "Grün", "--greedy", "--max_new_tokens", "9")
    assert out.startswith("Grün")
    assert "pretrained: GPT-2 with" in err

    run = finetune(init_from=str(folder), max_iters=12, learning_rate=3e-3, seed=3)
    held = load_checkpoint(run.last)
    assert (held.model["activation"], held.model["n_inner"], held.model["norm_eps"]) == ("gelu_tanh", 20, 1e-4)
    assert losses(run, "val_loss")[12] < losses(run, "val_loss")[0]
    assert train.main(["--resume", "--out_dir=second", "--max_iters=14"]) == 0
    assert sample.main(["second", "--max_new_tokens", "5"]) == 0


def test_gpt2_without_its_tokenizer_is_refused():
    folder = byte_folder("pretrained")
    (folder / "tinygrad_lite_tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer: put the tokenizer\.json"):
        finetune(init_from=str(folder))
