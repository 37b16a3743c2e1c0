"""Folders in the layouts of Llama, Mistral and Qwen: equal to independent implementations; and export."""

import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from extra.families import GPT as FAMILY
from extra.pretrained.export import export, main
from extra.pretrained.llama import LAYOUT
from extra.pretrained.read import load_pretrained
from extra.pretrained.write import effective
from gpt.model import GPT
from tests.extra.pretrained import gpt2_folders as folders
from tests.extra.pretrained.test_gpt2 import KINDS as GPT2S
from tests.extra.pretrained.test_gpt2 import LLAMA_PARTS, make_trained
from text.tokenizers.base import Tokenizer
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.tensor import Tensor

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 23, "max_position_embeddings": 32}
LLAMA |= {"hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3}
LLAMA |= {"num_key_value_heads": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
write_folder = folders.write_model
QWEN3 = LLAMA | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 6, "num_key_value_heads": 3}
QWEN2 = LLAMA | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False}
MISTRAL = LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
KINDS = [
    QWEN2 | {"sliding_window": 4},
    MISTRAL | {"sliding_window": 12, "head_dim": 8},
    LLAMA,
    LLAMA | {"num_key_value_heads": None, "tie_word_embeddings": True, "rope_theta": 500.0, "rms_norm_eps": 0.1},
    LLAMA | {"head_dim": 8, "rope_theta": 5e5, "rope_scaling": LLAMA3 | {"rope_type": "llama3"}},
    LLAMA | {"rope_parameters": LLAMA3 | {"rope_type": "llama3", "rope_theta": 100.0}, "num_attention_heads": 2},
    LLAMA | {"rope_scaling": LLAMA3 | {"rope_type": "llama3"}, "rope_parameters": {"rope_theta": 100.0}},
    QWEN3 | {"head_dim": 4, "tie_word_embeddings": True, "num_key_value_heads": 1, "rope_theta": 1e6},
]


def random_weights(settings: dict) -> dict[str, np.ndarray]:
    """Float64 weights under Llama's names, large enough that every part of the model matters."""
    c, f, heads = settings["hidden_size"], settings["intermediate_size"], settings["num_attention_heads"]
    kv_heads, d = settings.get("num_key_value_heads") or heads, settings.get("head_dim") or c // heads
    shapes = {"model.embed_tokens.weight": (settings["vocab_size"], c), "model.norm.weight": (c,)}
    for i in range(settings["num_hidden_layers"]):
        rows = {"q": heads * d, "k": kv_heads * d, "v": kv_heads * d}
        block = {f"self_attn.{name}_proj": (width, c) for name, width in rows.items()}
        block |= {"self_attn.o_proj": (c, heads * d), "input_layernorm": (c,), "post_attention_layernorm": (c,)}
        block |= {"mlp.gate_proj": (f, c), "mlp.up_proj": (f, c), "mlp.down_proj": (c, f)}
        if settings["model_type"] == "qwen3":
            block |= {"self_attn.q_norm": (d,), "self_attn.k_norm": (d,)}
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in block.items()}
        if settings["model_type"] == "qwen2":
            shapes |= {f"model.layers.{i}.self_attn.{name}_proj.bias": (width,) for name, width in rows.items()}
    if not settings["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (settings["vocab_size"], c)
    rng = np.random.default_rng(7)
    return {name: 0.4 * rng.standard_normal(shape) for name, shape in shapes.items()}


def llama_folder(path: Path, settings: dict = LLAMA, tokenizer: Tokenizer | None = None, **changes: object) -> Path:
    """A folder in one of these layouts, of float32 weights, with a tokenizer of ours; by default tokens are bytes."""
    tokenizer = tokenizer or ByteTokenizer()
    settings = settings | {"vocab_size": tokenizer.vocab_size} | changes
    write_folder(path, settings, {name: array.astype("float32") for name, array in random_weights(settings).items()})
    return folders.write_json(path, tinygrad_lite_tokenizer=tokenizer.to_json())


def angle(settings: dict, position: int, i: int, d: int) -> float:
    """The angle by which pair i of a head of width d is rotated at a position."""
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    theta = rope.get("rope_theta") or settings.get("rope_theta", 10000.0)
    frequency = theta ** (-2 * i / d)
    if rope:
        length, wavelength = rope["original_max_position_embeddings"], 2 * math.pi / frequency
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        if wavelength > length / low:
            frequency /= rope["factor"]
        elif wavelength > length / high:
            smooth = (length / wavelength - low) / (high - low)
            frequency *= (1 - smooth) / rope["factor"] + smooth
    return position * frequency


def forward(weights: dict[str, np.ndarray], settings: dict, ids: list[int]) -> np.ndarray:
    """The logits (T, V) of Llama or Qwen3 for one text of T ids, position by position in attention."""
    d = settings.get("head_dim") or settings["hidden_size"] // settings["num_attention_heads"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + settings["rms_norm_eps"]) * weights[f"{name}.weight"]

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def turned(x: np.ndarray, position: int) -> np.ndarray:
        y = x.copy()
        for i in range(d // 2):
            a, one, two = angle(settings, position, i, d), x[i], x[i + d // 2]
            y[i], y[i + d // 2] = one * math.cos(a) - two * math.sin(a), two * math.cos(a) + one * math.sin(a)
        return y

    def attention(name: str, x: np.ndarray) -> np.ndarray:
        query, key, value = (linear(f"{name}.{part}_proj", x).reshape(len(x), -1, d) for part in "qkv")
        if settings["model_type"] == "qwen3":
            query, key = norm(f"{name}.q_norm", query), norm(f"{name}.k_norm", key)
        query, key = (np.array([[turned(z, t) for z in row] for t, row in enumerate(part)]) for part in (query, key))
        return linear(f"{name}.o_proj", folders.attended(query, key, value))

    x = weights["model.embed_tokens.weight"][ids]
    for i in range(settings["num_hidden_layers"]):
        name = f"model.layers.{i}"
        x = x + attention(f"{name}.self_attn", norm(f"{name}.input_layernorm", x))
        z = norm(f"{name}.post_attention_layernorm", x)
        gate = linear(f"{name}.mlp.gate_proj", z)
        x = x + linear(f"{name}.mlp.down_proj", gate / (1 + np.exp(-gate)) * linear(f"{name}.mlp.up_proj", z))
    return norm("model.norm", x) @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T


@pytest.mark.parametrize("settings", KINDS)
def test_logits_and_greedy_text_equal_those_of_plain_numpy(tmp_path, settings):
    weights = random_weights(settings)
    model = folders.load_model(write_folder(tmp_path, settings, weights))
    folders.assert_computes(model, lambda ids: forward(weights, settings, ids), 6)


def test_several_files_of_float16_with_an_index_are_read(tmp_path):
    weights = {name: array.astype("float16") for name, array in random_weights(LLAMA).items()}
    float32 = {name: array.astype("float32") for name, array in weights.items()}
    _, _, expected, _ = load_pretrained(write_folder(tmp_path / "one", LLAMA, float32), FAMILY.layouts)
    folder = write_folder(tmp_path / "three", LLAMA, {})
    (folder / "model.safetensors").unlink()
    places = {}
    for number in range(3):
        part = dict(list(weights.items())[number::3])
        save_file(part, folder / f"model-{number}.safetensors")
        places |= dict.fromkeys(part, f"model-{number}.safetensors")
    folders.write_json(folder, **{"model.safetensors.index": {"weight_map": places}})
    title, _, found, _ = load_pretrained(folder, FAMILY.layouts)
    assert title == "Llama"
    np.testing.assert_equal(found, expected)


DIFFERENT = [
    ({"architectures": ["LlamaForSequenceClassification"]}, "but this program supports only LlamaForCausalLM"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu', but this program supports only 'silu'"),
    ({"residual_multiplier": 0.2}, "residual_multiplier is 0.2, a setting that this program does not know"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types has values other than"),
    ({"hidden_size": None}, "hidden_size is missing, which a llama needs"),
    ({"model_type": "qwen3", "architectures": None}, "head_dim is missing, which a qwen3 needs"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type in rope_scaling is 'yarn', but this program"),
    ({"model_type": "qwen2", "architectures": None, "use_sliding_window": True}, "use_sliding_window is True, but"),
    ({"rope_scaling": LLAMA3 | {"rope_type": "llama3", "factor": 0.5}}, "rope_scaling 0.5,1,4,16 is not FACTOR"),
    ({"rope_parameters": {"rope_type": "default", "beta": 1}}, "rope_parameters has beta, a setting that this"),
    ({"num_hidden_layers": 3}, r"lacks model\.layers\.2\..*and 4 more: it is not the model of config\.json"),
    ({"tie_word_embeddings": True}, r"lm_head\.weight differs from model\.embed_tokens\.weight"),
]


@pytest.mark.parametrize(("changes", "reason"), DIFFERENT)
def test_a_different_kind_of_model_is_refused(tmp_path, changes, reason):
    folder = write_folder(tmp_path, LLAMA | changes, random_weights(LLAMA))
    with pytest.raises(CheckpointError, match=reason):
        load_pretrained(folder, FAMILY.layouts)


def test_the_context_of_a_mistral_is_its_window():
    """Beyond it, the model would attend to the last tokens only, which this program does not."""
    long = {"max_position_embeddings": 32768}  # more than the window that transformers begins with
    for given, context in (({"sliding_window": 12}, 12), ({"sliding_window": None}, 32), ({}, 32), (long, 4096)):
        assert LAYOUT.own_config(MISTRAL | given).block_size == context


def test_a_qwen2_is_exported_while_the_biases_it_lacks_are_0(tmp_path):
    assert main([str(llama_folder(tmp_path / "a", QWEN2)), str(tmp_path / "b")]) == 0
    one, two = (load_pretrained(tmp_path / name, FAMILY.layouts) for name in "ab")
    assert (one[0], effective(one[1])) == (two[0], effective(two[1]))
    assert all((one[2][name] == two[2][name]).all() for name in one[2])
    model = GPT.from_weights(*one[1:3])
    model.blocks[1].mlp.up.bias.data[3] = 0.5
    with pytest.raises(CheckpointError, match=r"has learned model\.layers\.1\.mlp\.up_proj\.bias, but .* Qwen2"):
        LAYOUT.to_theirs(model)


SCALED = {"n_kv_head": 1, "n_inner": 12, "tie_weights": False, "rope_scaling": "8,1,4,8", "rope_theta": 50.0}
# GPTs of ours with the parts of Llama, and of Qwen3 with qk_norm.
MODERN = [
    LLAMA_PARTS | SCALED,
    LLAMA_PARTS | {"qk_norm": True, "head_dim": 6, "norm_eps": 1e-3},
    LLAMA_PARTS | {"qk_norm": True, "norm_weight": False, "attention_scale": 0.3},
    LLAMA_PARTS | {"norm_weight": False, "attention_scale": 2.0, "n_kv_head": 1},
]


@pytest.mark.parametrize("settings", MODERN)
def test_an_exported_model_is_read_back_unchanged(tmp_path, settings):
    trained = make_trained(**settings)
    name = export(trained, tmp_path / "folder")
    assert name == ("Qwen3ForCausalLM" if "qk_norm" in settings else "LlamaForCausalLM")
    _, config, weights, tokenizer = load_pretrained(tmp_path / "folder", FAMILY.layouts)
    assert tokenizer.to_json() == trained.tokenizer.to_json()
    ids = Tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    again = GPT.from_weights(config, weights).eval()
    tolerance = 1e-5 if "attention_scale" in settings else 0  # which is multiplied into weights
    np.testing.assert_allclose(again(ids).numpy(), trained.make_model()(ids).numpy(), rtol=0, atol=tolerance)


GPT2 = folders.SETTINGS | {"bos_token_id": None, "eos_token_id": None, "n_inner": 20, "activation_function": "gelu"}


@pytest.mark.torch
@pytest.mark.parametrize("settings", [*KINDS, GPT2 | {"layer_norm_epsilon": 1e-6}])
def test_logits_and_greedy_text_equal_those_of_transformers(tmp_path, settings, transformers, torch):
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(**settings | {"initializer_range": 0.4})
    theirs = transformers.AutoModelForCausalLM.from_config(config)
    theirs.to(torch.bfloat16).save_pretrained(tmp_path, max_shard_size="2KB")
    folders.assert_as_transformers(tmp_path, folders.load_model(tmp_path))


@pytest.mark.torch
@pytest.mark.parametrize("settings", [*GPT2S, *MODERN])
def test_transformers_gives_the_same_for_an_exported_model(tmp_path, settings):
    trained = make_trained(**settings)
    export(trained, tmp_path / "folder")
    folders.assert_as_transformers(tmp_path / "folder", trained.make_model())
