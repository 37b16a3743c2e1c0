"""A trained GPT in the layout of GPT-2: everything is read back bit for bit, and transformers computes the same."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from extra.families import GPT as FAMILY
from extra.gpt.config import GPTConfig
from extra.pretrained.export import export, main
from extra.pretrained.read import OWN_TOKENIZER, load_pretrained
from gpt.model import GPT
from tests.extra.pretrained import gpt2_folders as folders
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tests.gpt.saved_models import saved_gpt
from tests.places import here
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.random import random_key
from tinygrad_lite.tensor import Tensor
from training.family import Trained

TOKENIZER = CharTokenizer.train("abcdefghijklmno", ["<unk>", "<eos>"])
LLAMA_PARTS = {"norm": "rmsnorm", "positions": "rotary", "activation": "swiglu"}
KINDS = [
    {"bias": True},
    {"bias": False},
    {"bias": True, "activation": "gelu_tanh", "n_inner": 10, "norm_eps": 1e-3, "n_layer": 1},
    {"bias": False, "n_head": 1, "n_embd": 6, "n_layer": 3, "activation": "relu"},
]


def make_trained(dtype="float32", tokenizer=TOKENIZER, **settings):
    """A GPT in which every number matters: no bias is 0 and no gain is 1."""
    shape = {"vocab_size": tokenizer.vocab_size, "block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 8}
    config = GPTConfig(**shape | {"dropout": 0.1} | settings)
    with random_key(1):
        model = GPT(config).to(here(), dtype)
    rng = np.random.default_rng(2)
    weights = {name: (0.4 * rng.standard_normal(a.shape)).astype(dtype) for name, a in model.state_dict().items()}
    return Trained(Path("file"), "a GPT", GPT, config, tokenizer, weights)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("settings", KINDS)
def test_an_exported_model_is_a_gpt2_with_the_same_logits_and_read_back_unchanged(tmp_path, settings, dtype):
    trained, folder = make_trained(dtype, **settings), tmp_path / "folder"
    export(trained, folder)
    _, config, found, tokenizer = load_pretrained(folder, FAMILY.layouts)
    assert config == GPTConfig(**trained.config.to_json() | {"bias": True, "dropout": 0.0})
    assert tokenizer.to_json() == TOKENIZER.to_json()
    for name, array in found.items():
        expected = trained.weights.get(name, np.zeros(array.shape, dtype))  # a bias that the model does not have
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, expected)
    assert trained.weights.keys() <= found.keys()
    theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (theirs["model_type"], theirs["architectures"]) == ("gpt2", ["GPT2LMHeadModel"])
    assert (theirs["n_inner"], theirs["resid_pdrop"]) == (settings.get("n_inner"), 0.1)
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        weights = {name.removeprefix("transformer."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if dtype == "float64":
        logits = trained.make_model(here())(Tensor(np.array([folders.IDS]))).numpy()[0]
        np.testing.assert_allclose(logits, folders.forward(weights, theirs, folders.IDS), rtol=0, atol=1e-10)


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "note.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CheckpointError, match="is not empty: name a new folder"):
        export(make_trained(), tmp_path)
    with pytest.raises(CheckpointError, match="cannot write into"):
        export(make_trained(), tmp_path / "note.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_the_command_exports_a_file_or_a_run(tmp_path, capsys):
    saved_gpt(tmp_path / "best.safetensors", TOKENIZER)
    assert main([str(tmp_path / "best.safetensors"), str(tmp_path / "one")]) == 0
    assert "in the layout of GPT2LMHeadModel" in capsys.readouterr().err
    saved_gpt(tmp_path / "run" / "last.safetensors", TOKENIZER, bias=True)
    assert main([str(tmp_path / "run"), str(tmp_path / "two")]) == 0
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == ["config.json", "model.safetensors", OWN_TOKENIZER]
    for wrong in ([], ["one"], ["--checkpoint", "x"], ["a", "b", "c"]):
        with pytest.raises(OptionError, match=r"usage: python -m extra\.pretrained\.export CHECKPOINT DIR"):
            main(wrong)
    assert main(["--help"]) == 0
    assert "python -m extra.pretrained.export" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        main([str(tmp_path / "none.safetensors"), str(tmp_path / "three")])


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(["<eos>"]), BPETokenizer([[97, 98]])])
def test_our_other_tokenizers_are_exported_with_the_model(tmp_path, tokenizer):
    export(make_trained(tokenizer=tokenizer, n_layer=1), tmp_path / "folder")
    assert load_pretrained(tmp_path / "folder", FAMILY.layouts)[3].to_json() == tokenizer.to_json()
    assert not (tmp_path / "folder" / "tokenizer.json").exists()


def test_the_tokenizer_of_a_pretrained_model_is_exported_unchanged(tmp_path):
    pytest.importorskip("tokenizers")
    from extra.tokenizers.huggingface import HFTokenizer

    tokenizer = HFTokenizer(gpt2_definition({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")]), 12)
    export(make_trained(tokenizer=tokenizer), tmp_path / "folder")
    assert (tmp_path / "folder" / "tokenizer.json").read_text(encoding="utf-8") == tokenizer.definition
    assert json.loads((tmp_path / "folder" / "config.json").read_text(encoding="utf-8"))["eos_token_id"] == 3
    (tmp_path / "folder" / OWN_TOKENIZER).unlink()
    assert load_pretrained(tmp_path / "folder", FAMILY.layouts)[3].to_json() == tokenizer.to_json()


LACKING = [
    ({"positions": "sinusoidal"}, "positions sinusoidal", "GPT2LMHeadModel allows only learned"),
    ({"positions": "rotary"}, "positions rotary", "GPT2LMHeadModel allows only learned"),
    ({"activation": "swiglu"}, "activation swiglu", "GPT2LMHeadModel allows only gelu"),
    ({"n_kv_head": 1}, "n_kv_head 1", "GPT2LMHeadModel allows only 2"),
    ({"head_dim": 6}, "head_dim 6", "GPT2LMHeadModel allows only 4"),
    ({"qk_norm": True}, "qk_norm True", "GPT2LMHeadModel allows only False"),
    ({"attention_scale": 0.2}, "attention_scale 0.2", "GPT2LMHeadModel allows only none"),
    ({"tie_weights": False}, "tie_weights False", "GPT2LMHeadModel allows only True"),
    (LLAMA_PARTS | {"activation": "relu2"}, "activation relu2", "LlamaForCausalLM allows only swiglu"),
    (LLAMA_PARTS | {"bias": True, "qk_norm": True}, "bias True", "Qwen3ForCausalLM allows only False"),
]


@pytest.mark.parametrize(("settings", "named", "allowed"), LACKING)
def test_a_setting_that_the_layout_lacks_is_named(tmp_path, settings, named, allowed):
    with pytest.raises(CheckpointError, match=f"the model has {named}, but the layout of {allowed}: train one with"):
        export(make_trained(**settings), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
