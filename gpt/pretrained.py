"""Weights that others trained: a folder in Hugging Face's GPT-2 layout becomes our settings, weights and tokenizer.

    config.json          n_layer, n_head, n_embd, n_positions (our block_size), ...
    model.safetensors    the weights, by GPT-2's names (`layer_names` translates them)
    tokenizer.json       or vocab.json and merges.txt; or the file that `gpt/export.py` writes

GPT-2 has the same layers as our GPT with bias=True. Its files differ from ours in two ways:

    orientation    a linear map is kept as (in, out), y = x W + b; ours as (out, in), y = x W^T + b
    packing        queries, keys and values are one map h.N.attn.c_attn of (C, 3 C); ours are three of (C, C)

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
Format: the class GPT2LMHeadModel of https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from gpt.config import GPTConfig
from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.tokenizers import tokenizer_from_json
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.tokenizers.huggingface import HFTokenizer

WEIGHTS = "model.safetensors"
OWN_TOKENIZER = "tinygrad_lite_tokenizer.json"
OUR_ACTIVATION = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
# What each setting must be, if it is there, for the model to be the one that we compute.
REQUIRED = {
    "model_type": "gpt2",
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
# GPT-2 small, which a config.json means where it says nothing.
DEFAULTS = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}
# Not learned: the causal mask, which older files hold as if it were a weight.
BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")


def load_gpt2(folder: Path) -> tuple[GPTConfig, dict[str, np.ndarray], Tokenizer | None]:
    """Read a folder in Hugging Face's GPT-2 layout.

    Returns: the settings, the weights by our names (float16 becomes float32), and the tokenizer, None if there is
        no file of one.
    Raises: CheckpointError if a file is missing or damaged, or describes a model that ours is not; TokenizerError if
        the tokenizer cannot be used.
    """
    config = read_config(folder / "config.json")
    weights = to_own_weights(_read_weights(folder), config)
    return config, weights, _read_tokenizer(folder, config.vocab_size)


def read_config(path: Path) -> GPTConfig:
    """Our settings from GPT-2's.

    Raises: CheckpointError if the file is missing, no JSON, or describes a model that ours is not.
    """
    try:
        theirs = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"there is no {path}: a pretrained GPT-2 is a folder with config.json and {WEIGHTS}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no readable JSON ({error})") from None
    if not isinstance(theirs, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    try:
        return own_config(theirs)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def own_config(theirs: Mapping[str, Any]) -> GPTConfig:
    """Our settings from GPT-2's by their names in config.json.

    Raises: CheckpointError if they describe a model that ours is not.
    """
    for name, value in REQUIRED.items():
        if theirs.get(name, value) != value:
            raise CheckpointError(
                f"{name} is {theirs[name]!r}, but this program computes only models where it is {value!r}"
            )
    theirs = DEFAULTS | theirs
    activation = theirs["activation_function"]
    if not isinstance(activation, str) or activation not in OUR_ACTIVATION:
        raise CheckpointError(
            f"activation_function is {activation!r}, but this program knows only {', '.join(OUR_ACTIVATION)}"
        )
    return GPTConfig.from_json(
        {
            "vocab_size": theirs["vocab_size"],
            "block_size": theirs["n_positions"],
            "n_layer": theirs["n_layer"],
            "n_head": theirs["n_head"],
            "n_embd": theirs["n_embd"],
            "dropout": 0.0,
            "bias": True,
            "positions": "learned",
            "activation": OUR_ACTIVATION[activation],
            "norm_eps": theirs["layer_norm_epsilon"],
            "n_inner": 0 if theirs["n_inner"] is None else theirs["n_inner"],
        }
    )


def layer_names(n_layer: int) -> dict[str, str]:
    """Our name of each part, by GPT-2's. Two parts differ in more than the name: `c_attn` is three of ours.

    >>> layer_names(1)["h.0.mlp.c_fc"]
    'blocks.0.mlp.up'
    """
    names = {"wte": "token_embedding", "wpe": "position_embedding"}
    for i in range(n_layer):
        theirs, ours = f"h.{i}", f"blocks.{i}"
        names |= {
            f"{theirs}.ln_1": f"{ours}.mixer_norm",
            f"{theirs}.attn.c_attn": f"{ours}.mixer",  # .query, .key and .value
            f"{theirs}.attn.c_proj": f"{ours}.mixer.output",
            f"{theirs}.ln_2": f"{ours}.mlp_norm",
            f"{theirs}.mlp.c_fc": f"{ours}.mlp.up",
            f"{theirs}.mlp.c_proj": f"{ours}.mlp.down",
        }
    return names | {"ln_f": "final_norm"}


def gpt2_shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of such a model, by GPT-2's names."""
    c, f = config.n_embd, config.n_hidden
    maps = {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, f), "mlp.c_proj": (f, c)}
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (config.vocab_size, c), "wpe.weight": (config.block_size, c)}
    for name in layer_names(config.n_layer):
        kind = name.split(".", 2)[-1]
        if kind in maps:
            shapes |= {f"{name}.weight": maps[kind], f"{name}.bias": maps[kind][1:]}
        elif kind not in ("wte", "wpe"):
            shapes |= {f"{name}.weight": (c,), f"{name}.bias": (c,)}
    return shapes


def to_own_weights(theirs: Mapping[str, np.ndarray], config: GPTConfig) -> dict[str, np.ndarray]:
    """The weights by our names and in our orientation, of those by GPT-2's names.

    Raises: CheckpointError that names what is missing, unexpected, or of another shape than the settings say.
    """
    if config.n_layer > len(theirs):  # before their names are listed: a damaged config.json may claim millions
        raise CheckpointError(f"{WEIGHTS} holds {len(theirs)} tensors, too few for n_layer {config.n_layer}")
    _check_names_and_shapes(theirs, gpt2_shapes(config))
    ours = {}
    for their_name, our_name in layer_names(config.n_layer).items():
        for kind in ("weight", "bias"):
            array = theirs.get(f"{their_name}.{kind}")
            if array is None:  # embeddings have no bias
                continue
            if "c_" in their_name:  # a linear map
                array = array.T  # (in, out) -> (out, in); a bias is a vector and stays what it is
            if their_name.endswith("c_attn"):
                for part, piece in zip(("query", "key", "value"), np.split(array, 3), strict=True):
                    ours[f"{our_name}.{part}.{kind}"] = np.ascontiguousarray(piece)
            else:
                ours[f"{our_name}.{kind}"] = np.ascontiguousarray(array)
    return ours


def _check_names_and_shapes(theirs: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    missing = [name for name in shapes if name not in theirs]
    unexpected = [name for name in theirs if name not in shapes]
    for title, names in (("lacks", missing), ("holds the unknown", unexpected)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise CheckpointError(f"{WEIGHTS} {title} {', '.join(names[:5])}{more}: it is not the GPT-2 of config.json")
    for name, shape in shapes.items():
        if theirs[name].shape != shape:
            raise CheckpointError(f"{WEIGHTS}: {name} has the shape {theirs[name].shape}, config.json says {shape}")


def _read_weights(folder: Path) -> dict[str, np.ndarray]:
    """What model.safetensors holds, without the prefix `transformer.`, the mask, and the tied output matrix."""
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no {WEIGHTS}, the only format that is read: where transformers and torch are installed, "
            f'convert it by GPT2LMHeadModel.from_pretrained("{folder}").save_pretrained("NEW_FOLDER", '
            'max_shard_size="100GB")'
        )
    weights = {}
    with suppress(ImportError):
        import ml_dtypes  # noqa: F401 (with it, bfloat16 can be read)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                short = name.removeprefix("transformer.")
                if not BUFFER.fullmatch(short):
                    weights[short] = _as_float(path, name, file.get_tensor(name))
    except (safetensors.SafetensorError, OSError, TypeError, ValueError, AttributeError) as error:
        # The last three come of types that NumPy does not have, such as bfloat16.
        raise CheckpointError(
            f"{path} cannot be read ({error}): it is damaged, or of a type that NumPy does not have; for bfloat16 "
            "pip install ml_dtypes, or save it as float32"
        ) from None
    head = weights.pop("lm_head.weight", None)
    if head is not None and not np.array_equal(head, weights.get("wte.weight", np.empty(0))):
        raise CheckpointError(f"{path}: lm_head.weight is not wte.weight, but here the output matrix is always tied")
    return weights


def _as_float(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.name in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    if array.dtype not in (np.float32, np.float64):
        raise CheckpointError(f"{path}: {name} is of the type {array.dtype}, not of floating-point numbers")
    if not np.isfinite(array).all():
        raise CheckpointError(f"{path}: {name} holds NaN or infinity")
    return array


def _read_tokenizer(folder: Path, vocab_size: int) -> Tokenizer | None:
    path = folder / OWN_TOKENIZER
    if not path.is_file():
        return HFTokenizer.from_folder(folder, vocab_size)
    try:
        tokenizer = tokenizer_from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no readable JSON ({error})") from None
    if tokenizer.vocab_size != vocab_size:
        raise CheckpointError(f"{path} has {tokenizer.vocab_size} tokens, the model of config.json {vocab_size}")
    return tokenizer
