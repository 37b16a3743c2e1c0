"""Small folders in Hugging Face's GPT-2 layout, and GPT-2 itself in plain NumPy, for the tests of both directions.

`forward` is written from the paper and the layout alone, in float64 and without the library, so it can check whether
the library reads such a folder correctly.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from extra.families import GPT as FAMILY
from extra.pretrained.read import load_pretrained
from gpt.model import GPT
from tests.places import here
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.tensor import Tensor

IDS = [3, 1, 4, 1, 5, 9, 2, 6]
SETTINGS = {"model_type": "gpt2", "vocab_size": 23, "n_positions": 16, "n_embd": 12, "n_layer": 2, "n_head": 3}
SETTINGS |= {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


def random_weights(settings: dict, dtype: str = "float64") -> dict[str, np.ndarray]:
    """Weights under GPT-2's names, (in, out), large enough that every part of the model matters."""
    rng = np.random.default_rng(7)
    c = settings["n_embd"]
    f = settings.get("n_inner") or 4 * c
    shapes = {"wte.weight": (settings["vocab_size"], c), "wpe.weight": (settings["n_positions"], c)}
    for i in range(settings["n_layer"]):
        maps = {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, f), "mlp.c_proj": (f, c)}
        for name, shape in maps.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{name}.weight": (c,), f"h.{i}.{name}.bias": (c,)}
    shapes |= {"ln_f.weight": (c,), "ln_f.bias": (c,)}
    return {name: (0.4 * rng.standard_normal(shape)).astype(dtype) for name, shape in shapes.items()}


def write_folder(folder: Path, weights: dict[str, np.ndarray], **changes: object) -> Path:
    """Write config.json, with these changes (None omits a setting), and model.safetensors."""
    settings = {name: value for name, value in (SETTINGS | changes).items() if value is not None}
    return write_model(folder, settings, weights)


def byte_folder(path: str | Path, **changes: object) -> Path:
    """A folder in GPT-2's layout with random weights, whose tokens are bytes."""
    settings = SETTINGS | {"vocab_size": 256} | changes
    folder = write_folder(Path(path), random_weights(settings, "float32"), **settings)
    return write_json(folder, tinygrad_lite_tokenizer=ByteTokenizer().to_json())


def write_model(folder: Path, settings: dict, weights: dict[str, np.ndarray]) -> Path:
    """Write config.json and model.safetensors."""
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return write_json(folder, config=settings)


def write_json(folder: Path, **files: object) -> Path:
    """Write these files, each of which is named without its .json."""
    for name, data in files.items():
        (folder / f"{name}.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def attended(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """What causal attention reads, position by position: queries (T, H, D), keys and values (T, G, D) -> (T, H D)."""
    y = np.zeros_like(query)
    for t, h in np.ndindex(*query.shape[:2]):
        shared = h // (query.shape[1] // key.shape[1])
        scores = key[: t + 1, shared] @ query[t, h] / math.sqrt(query.shape[2])
        shares = np.exp(scores - scores.max())
        y[t, h] = shares / shares.sum() @ value[: t + 1, shared]
    return y.reshape(len(y), -1)


def forward(weights: dict[str, np.ndarray], settings: dict, ids: list[int]) -> np.ndarray:
    """The logits (T, V) of GPT-2 for one text of T ids, position by position in attention."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + settings["layer_norm_epsilon"])
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def activation(x: np.ndarray) -> np.ndarray:
        if settings["activation_function"] == "relu":
            return np.maximum(x, 0)
        if settings["activation_function"] == "gelu":
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def attention(name: str, x: np.ndarray) -> np.ndarray:
        parts = np.split(linear(f"{name}.c_attn", x), 3, axis=-1)
        y = attended(*(part.reshape(len(x), settings["n_head"], -1) for part in parts))
        return linear(f"{name}.c_proj", y)

    x = weights["wte.weight"][ids] + weights["wpe.weight"][: len(ids)]
    for i in range(settings["n_layer"]):
        x = x + attention(f"h.{i}.attn", norm(f"h.{i}.ln_1", x))
        x = x + linear(f"h.{i}.mlp.c_proj", activation(linear(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", x))))
    return norm("ln_f", x) @ weights["wte.weight"].T


def load_model(folder: Path) -> GPT:
    """The model in a folder, ready to write."""
    _, config, weights, _ = load_pretrained(folder, FAMILY.layouts)
    return GPT.from_weights(config, weights, here()).eval()


def assert_computes(model: GPT, logits_of: Callable[[list[int]], np.ndarray], length: int) -> None:
    """The model has these logits (T, V) of a text, and continues one greedily as they say."""
    np.testing.assert_allclose(model(Tensor(np.array([IDS]))).numpy()[0], logits_of(IDS), rtol=0, atol=1e-10)
    text = IDS[:4]
    for _ in range(length):
        text.append(int(logits_of(text)[-1].argmax()))
    assert greedy(model, IDS[:4], length) == text[4:]


def assert_as_transformers(folder: Path, ours: GPT, length: int = 8) -> None:
    """transformers reads all of the folder, and its model has the same logits and writes the same text."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    load = transformers.AutoModelForCausalLM.from_pretrained
    theirs, report = load(folder, dtype=torch.float32, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert set(report["missing_keys"]) <= {"lm_head.weight"}
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor([IDS])).logits[0].numpy()
        settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        text = theirs.generate(torch.tensor([IDS[:4]]), max_new_tokens=length, **settings)[0].tolist()
    np.testing.assert_allclose(ours(Tensor(np.array([IDS]))).numpy()[0], expected, rtol=0, atol=1e-4)
    assert greedy(ours, IDS[:4], length) == text[4:]


def greedy(model: GPT, ids: list[int], length: int) -> list[int]:
    """The ids of a greedy continuation, with the model's key-value cache."""
    log_probs, state = model.start(np.array([ids]))
    text = []
    for _ in range(length):
        text.append(int(log_probs[0].argmax()))
        log_probs, state = model.step(np.array(text[-1:]), state)
    return text
