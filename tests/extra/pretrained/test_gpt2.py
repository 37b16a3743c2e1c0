"""A folder in the layout of GPT-2 becomes our model, with the logits and the text of an independent GPT-2."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from extra.families import GPT as FAMILY
from extra.pretrained.gpt2 import LAYOUT
from extra.pretrained.read import OWN_TOKENIZER, load_pretrained, read_config
from gpt.model import GPT
from tests.extra.pretrained import gpt2_folders as folders
from tests.extra.pretrained.gpt2_folders import SETTINGS, assert_computes, load_model, random_weights, write_folder
from tests.extra.tokenizers.test_huggingface import gpt2_definition
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CheckpointError, TokenizerError


def load_gpt2(folder):
    title, config, weights, tokenizer = load_pretrained(folder, FAMILY.layouts)
    assert title == "GPT-2"
    return config, weights, tokenizer


CHANGES = [
    {},
    {"activation_function": "gelu"},
    {"activation_function": "relu"},
    {"activation_function": "gelu_pytorch_tanh", "n_inner": 7},
    {"n_layer": 1, "n_head": 1, "n_embd": 4, "vocab_size": 5 * 2, "n_positions": 12},
    {"n_layer": 3, "n_head": 4, "n_embd": 8, "layer_norm_epsilon": 0.3, "n_inner": 40},
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
    assert config == plain[0]
    assert tokenizer is None
    assert loaded.keys() == plain[1].keys() == GPT(config).state_dict().keys()
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, plain[1][name])


def test_a_config_may_omit_the_settings_of_gpt2_small(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_ctx": 1024}', encoding="utf-8")
    kind, config = read_config(tmp_path / "config.json", FAMILY.layouts)
    assert (kind, GPT.blueprint(config).num_parameters()) == ("gpt2", 124_439_808)
    assert (config.activation, config.norm_eps, config.bias) == ("gelu_tanh", 1e-5, True)
    assert sum(int(np.prod(shape)) for shape in LAYOUT.shapes(config).values()) == 124_439_808


ALWAYS = ("tie_word_embeddings", "scale_attn_weights", "is_causal")
NEVER = ("scale_attn_by_inverse_layer_idx", "add_cross_attention")
DIFFERENT = [
    ({"model_type": "bert"}, "model_type is 'bert', but this program supports only gpt2, llama, mistral, qwen2, qwen3"),
    ({"model_type": "roberta"}, "model_type is 'roberta', but this program supports only gpt2, llama,"),
    ({"model_type": None}, "config.json has no model_type, which says what kind of model it is"),
    ({"model_type": ["gpt2"]}, "model_type is"),
    *(({name: False}, f"{name} is False, but this program supports only True") for name in ALWAYS),
    *(({name: True}, f"{name} is True, but this program supports only False") for name in NEVER),
    ({"hidden_size": 12}, "hidden_size is 12, a setting that this program does not know"),
    ({"quantization_config": {"bits": 4}}, "quantization_config is"),
    ({"activation_function": "silu"}, "activation_function is 'silu', but this program supports only gelu_new"),
    ({"activation_function": ["gelu"]}, "activation_function is"),
    ({"n_layer": "2"}, "n_layer cannot be '2'"),
    ({"layer_norm_epsilon": 0}, "norm_eps cannot be 0"),
    ({"n_layer": 3}, r"lacks h\.2\.ln_1\.weight.*and 7 more"),
    ({"n_layer": 1000}, "holds 28 tensors, too few for 1000 layers"),
    ({"n_layer": 1}, r"holds the unknown h\.1\.attn.* more: the architecture in config.json has no such part"),
    ({"n_positions": 17}, r"wpe\.weight has the shape \(16, 12\), config\.json says \(17, 12\)"),
    ({"n_inner": 9}, r"c_fc\.weight has the shape"),
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
    for name, array in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array)


def test_missing_or_damaged_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no .*config\.json: a pretrained model is a folder with"):
        load_gpt2(tmp_path)
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    (folder / "model.safetensors").write_bytes(b"\x08")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_gpt2(folder)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    for places in ({}, {"wte.weight": "../a.safetensors"}):
        index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")
        with pytest.raises(CheckpointError, match="does not say which files hold the weights"):
            load_gpt2(folder)
    index.write_text('{"weight_map": {"wte.weight": "model-1.safetensors"}}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"there is no .*model-1\.safetensors, which .* names: copy all files"):
        load_gpt2(folder)
    index.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"has no model\.safetensors.*save_pretrained\("):
        load_gpt2(folder)
    for text, reason in (("{", "not readable JSON"), ("[]", "not hold a JSON object")):
        (folder / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(CheckpointError, match=reason):
            load_gpt2(folder)


def test_our_own_tokenizer_comes_first_and_must_fit(tmp_path):
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    path = folder / OWN_TOKENIZER
    fits = CharTokenizer([chr(97 + i) for i in range(22)])
    (folder / "tokenizer.json").write_text("never read", encoding="utf-8")
    path.write_text(json.dumps(fits.to_json()), encoding="utf-8")
    assert load_gpt2(folder)[2].encode("abz") == [0, 1, 22]
    another = json.dumps(CharTokenizer.train("abc").to_json())
    for text, error, reason in (
        (another, CheckpointError, r"has 4 tokens, the model of config\.json 23"),
        ("{", CheckpointError, "not readable JSON"),
        ('{"kind": "none"}', TokenizerError, "unknown kind"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(error, match=reason):
            load_gpt2(folder)


def test_the_tokenizer_in_a_folder_is_read_with_the_models_number_of_ids(tmp_path):
    pytest.importorskip("tokenizers")
    folder = write_folder(tmp_path, random_weights(SETTINGS))
    definition = gpt2_definition({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}, [("a", "b")])
    (folder / "tokenizer.json").write_text(definition, encoding="utf-8")
    tokenizer = load_gpt2(folder)[2]
    assert (tokenizer.kind, tokenizer.vocab_size) == ("hf", 23)
    assert tokenizer.encode("aab") == [0, 2]
    assert tokenizer.textless == (3, *range(4, 23))  # the special and the rows beyond it
    write_folder(folder, random_weights(SETTINGS | {"vocab_size": 3}), vocab_size=3)
    with pytest.raises(TokenizerError, match="ids up to 3, which do not fit into 3 tokens"):
        load_gpt2(folder)
