"""A folder in the layout of GPT-2 becomes our model, with an independent GPT-2's logits and text; and export.

An exported model is read back bit for bit, and transformers computes the same.
"""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

from extra.families import GPT as FAMILY
from extra.gpt.config import GPTConfig
from extra.pretrained.export import export, main
from extra.pretrained.read import OWN_TOKENIZER, load_pretrained, read_config
from gpt.model import GPT
from tests.extra.pretrained import gpt2_folders as folders
from tests.extra.pretrained.gpt2_folders import SETTINGS, assert_computes, load_model, random_weights, write_folder
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from tests.gpt.saved_models import saved_gpt
from tests.places import here
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, OptionError
from tinygrad_lite.random import random_key
from tinygrad_lite.tensor import Tensor
from training.family import Trained


def load_gpt2(folder):
    title, config, weights, tokenizer = load_pretrained(folder, FAMILY.layouts)
    assert title == "GPT-2"
    return config, weights, tokenizer


CHANGES = [
    {"activation_function": "gelu"},
    {"activation_function": "gelu_pytorch_tanh", "n_inner": 7},
    {"activation_function": "relu", "n_layer": 3, "n_head": 4, "n_embd": 8, "layer_norm_epsilon": 0.3, "n_inner": 40},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_logits_and_greedy_text_equal_those_of_gpt2_in_plain_numpy(tmp_path, changes):
    settings = SETTINGS | changes
    weights = random_weights(settings)
    model = load_model(write_folder(tmp_path, weights, **changes))
    assert_computes(model, lambda ids: folders.forward(weights, settings, ids), 8)


def test_additions_by_other_programs_are_ignored(tmp_path):
    """The prefix of GPT2LMHeadModel, the causal mask as a buffer, and the tied matrix a second time."""
    weights = random_weights(SETTINGS, "float32")
    plain = load_gpt2(write_folder(tmp_path / "plain", weights))
    mask = np.tril(np.ones((1, 1, 16, 16), bool))
    extra = {"h.0.attn.bias": mask, "h.1.attn.masked_bias": np.float32([-1e4])}
    full = {f"transformer.{name}": array for name, array in (weights | extra).items()}
    full["lm_head.weight"] = weights["wte.weight"]
    config, loaded, tokenizer = load_gpt2(write_folder(tmp_path / "full", full))
    assert (config, tokenizer) == (plain[0], None)
    np.testing.assert_equal(loaded, plain[1])


def test_a_config_may_omit_the_settings_of_gpt2_small(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_ctx": 1024}', encoding="utf-8")
    kind, config = read_config(tmp_path / "config.json", FAMILY.layouts)
    assert (kind, GPT.blueprint(config).num_parameters()) == ("gpt2", 124_439_808)
    assert (config.activation, config.norm_eps, config.bias) == ("gelu_tanh", 1e-5, True)


ALWAYS = ("tie_word_embeddings", "scale_attn_weights", "is_causal")
NEVER = ("scale_attn_by_inverse_layer_idx", "add_cross_attention")
DIFFERENT = [
    ({"model_type": "bert"}, "model_type is 'bert', but this program supports only gpt2, llama, mistral, qwen2, qwen3"),
    ({"model_type": None}, "config.json has no model_type, which says what kind of model it is"),
    *(({name: False}, f"{name} is False, but this program supports only True") for name in ALWAYS),
    *(({name: True}, f"{name} is True, but this program supports only False") for name in NEVER),
    ({"hidden_size": 12}, "hidden_size is 12, a setting that this program does not know"),
    ({"activation_function": "silu"}, "activation_function is 'silu', but this program supports only gelu_new"),
    ({"n_layer": "2"}, "n_layer cannot be '2'"),
    ({"layer_norm_epsilon": 0}, "norm_eps cannot be 0"),
    ({"n_layer": 3}, r"lacks h\.2\.ln_1\.weight.*and 7 more"),
    ({"n_layer": 1}, r"holds the unknown h\.1\.attn.* more: the architecture in config.json has no such part"),
    ({"n_positions": 17}, r"wpe\.weight has the shape \(16, 12\), config\.json says \(17, 12\)"),
]
NOT_WEIGHTS = [
    ({"lm_head.weight": np.ones((23, 12))}, r"lm_head\.weight differs from wte\.weight, but config\.json says"),
    ({"wte.weight": np.full((23, 12), np.nan)}, "holds NaN or infinity"),
    ({"wte.weight": np.ones((23, 12), np.int64)}, "has the type int64"),
]
REFUSED = [(changes, {}, reason) for changes, reason in DIFFERENT] + [({}, *row) for row in NOT_WEIGHTS]


@pytest.mark.parametrize(("changes", "arrays", "reason"), REFUSED)
def test_a_different_kind_of_model_or_of_weights_is_refused(tmp_path, changes, arrays, reason):
    folder = write_folder(tmp_path, random_weights(SETTINGS) | arrays, **changes)
    with pytest.raises(CheckpointError, match=reason):
        load_gpt2(folder)


def test_bfloat16_becomes_float32(tmp_path):
    """It is written as the upper halves of float32 numbers, and with the type renamed in the header."""
    weights, folder = random_weights(SETTINGS, "float32"), write_folder(tmp_path, random_weights(SETTINGS))
    data = save({name: (w.view(np.uint32) >> 16).astype(np.uint16) for name, w in weights.items()})
    size = struct.unpack("<Q", data[:8])[0]
    header = data[8 : 8 + size].replace(b'"U16"', b'"BF16"').rstrip()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])
    rounded = {name: (weight.view(np.uint32) >> 16 << 16).view(np.float32) for name, weight in weights.items()}
    _, found, _ = load_gpt2(folder)
    _, expected, _ = load_gpt2(write_folder(tmp_path / "float32", rounded))
    np.testing.assert_equal(found, expected)
    assert {array.dtype for array in found.values()} == {np.dtype("float32")}


CONFIG, MODEL = "config.json", "model.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
FLOAT8 = json.dumps({"wte.weight": {"dtype": "F8_E4M3", "shape": [12], "data_offsets": [0, 12]}}).encode()
PLACES = [({"wte.weight": "../a.safetensors"}, "does not say which files hold the weights")]
PLACES += [({"wte.weight": "m-1.safetensors"}, r"there is no .*m-1\.safetensors, which .* names: copy all files")]
DAMAGED = [  # files in place of others, or of which one is missing
    ({CONFIG: None}, r"there is no .*config\.json: a pretrained model is a folder with"),
    ({CONFIG: b"{"}, "not readable JSON"),
    ({MODEL: POINTER}, "is a pointer of Git LFS"),
    (
        {MODEL: len(FLOAT8).to_bytes(8, "little") + FLOAT8 + bytes(12)},
        "wte.weight is of the type F8_E4M3: convert the",
    ),
    ({MODEL: None, "pytorch_model.bin": b""}, r"has no model\.safetensors.*save_pretrained\("),
    (
        {MODEL: None} | {f"model-0000{n}-of-00002.safetensors": b"" for n in (2, 1)},
        "has model-00001-of-00002.* copy it",
    ),
    *(({MODEL: None, f"{MODEL}.index.json": json.dumps({"weight_map": p}).encode()}, reason) for p, reason in PLACES),
]


@pytest.mark.parametrize(("files", "reason"), DAMAGED)
def test_missing_or_damaged_files_are_refused(files, reason, tmp_path):
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    for name, data in files.items():
        (folder / name).unlink() if data is None else (folder / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=reason):
        load_gpt2(folder)


def test_our_own_tokenizer_comes_first_and_must_fit(tmp_path):
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    path = folder / OWN_TOKENIZER
    fits = CharTokenizer([chr(97 + i) for i in range(22)])
    (folder / "tokenizer.json").write_text("never read", encoding="utf-8")
    path.write_text(json.dumps(fits.to_json()), encoding="utf-8")
    assert load_gpt2(folder)[2].encode("abz") == [0, 1, 22]
    path.write_text(json.dumps(CharTokenizer.train("abc").to_json()), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"has 4 tokens, the model of config\.json 23"):
        load_gpt2(folder)


def test_the_tokenizer_in_a_folder_is_read_with_the_models_number_of_ids(tmp_path, tokenizers):
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    definition = gpt2_definition({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")])
    (folder / "tokenizer.json").write_text(definition, encoding="utf-8")
    tokenizer = load_gpt2(folder)[2]
    assert (tokenizer.kind, tokenizer.vocab_size) == ("hf", 23)
    assert tokenizer.encode("aab") == [0, 2]
    assert tokenizer.textless == (3, *range(4, 23))  # the special and the rows beyond it


# --- export -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("settings", KINDS)
def test_an_exported_model_is_a_gpt2_with_the_same_logits_and_read_back_unchanged(tmp_path, settings):
    trained, folder = make_trained("float64", **settings), tmp_path / "folder"
    export(trained, folder)
    _, config, found, tokenizer = load_pretrained(folder, FAMILY.layouts)
    assert config == GPTConfig(**trained.config.to_json() | {"bias": True, "dropout": 0.0})
    assert tokenizer.to_json() == TOKENIZER.to_json()
    for name, array in found.items():
        expected = trained.weights.get(name, np.zeros(array.shape))  # a bias that the model does not have
        assert array.dtype == np.float64
        np.testing.assert_array_equal(array, expected)
    assert trained.weights.keys() <= found.keys()
    theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (theirs["model_type"], theirs["architectures"]) == ("gpt2", ["GPT2LMHeadModel"])
    assert (theirs["n_inner"], theirs["resid_pdrop"]) == (settings.get("n_inner"), 0.1)
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        weights = {name.removeprefix("transformer."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    logits = trained.make_model(here())(Tensor(np.array([folders.IDS]))).numpy()[0]
    np.testing.assert_allclose(logits, folders.forward(weights, theirs, folders.IDS), rtol=0, atol=1e-10)


def test_the_command_exports_a_file_or_a_run(tmp_path, ran):
    path = saved_gpt(tmp_path / "best.safetensors", TOKENIZER)
    assert "in the layout of GPT2LMHeadModel" in ran(main, path, tmp_path / "one").err
    saved_gpt(tmp_path / "run" / "last.safetensors", TOKENIZER, bias=True)
    ran(main, tmp_path / "run", tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "two").iterdir())
    assert names == ["config.json", "model.safetensors", OWN_TOKENIZER]
    with pytest.raises(OptionError, match=r"usage: python -m extra\.pretrained\.export CHECKPOINT DIR"):
        main(["one"])
    with pytest.raises(CheckpointError, match="is not empty: name a new folder"):
        main([str(path), str(tmp_path / "two")])
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == names


def test_the_tokenizer_of_a_pretrained_model_is_exported_unchanged(tmp_path, tokenizers):
    from extra.tokenizers.huggingface import HFTokenizer

    tokenizer = HFTokenizer(gpt2_definition({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")]), 12)
    export(make_trained(tokenizer=tokenizer), tmp_path / "folder")
    assert (tmp_path / "folder" / "tokenizer.json").read_text(encoding="utf-8") == tokenizer.definition
    assert json.loads((tmp_path / "folder" / "config.json").read_text(encoding="utf-8"))["eos_token_id"] == 3
    (tmp_path / "folder" / OWN_TOKENIZER).unlink()
    assert load_pretrained(tmp_path / "folder", FAMILY.layouts)[3].to_json() == tokenizer.to_json()


LACKING = [
    ({"positions": "sinusoidal"}, "positions sinusoidal", "GPT2LMHeadModel allows only learned"),
    ({"activation": "swiglu"}, "activation swiglu", "GPT2LMHeadModel allows only gelu"),
    ({"n_kv_head": 1}, "n_kv_head 1", "GPT2LMHeadModel allows only 2"),
    ({"qk_norm": True}, "qk_norm True", "GPT2LMHeadModel allows only False"),
    ({"attention_scale": 0.2}, "attention_scale 0.2", "GPT2LMHeadModel allows only none"),
    (LLAMA_PARTS | {"activation": "relu2"}, "activation relu2", "LlamaForCausalLM allows only swiglu"),
    (LLAMA_PARTS | {"bias": True, "qk_norm": True}, "bias True", "Qwen3ForCausalLM allows only False"),
]


@pytest.mark.parametrize(("settings", "named", "allowed"), LACKING)
def test_a_setting_that_the_layout_lacks_is_named(tmp_path, settings, named, allowed):
    with pytest.raises(CheckpointError, match=f"the model has {named}, but the layout of {allowed}: train one with"):
        export(make_trained(**settings), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
