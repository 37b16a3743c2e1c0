"""The names of GPT-2 in Hugging Face's layout, and ours: settings and weights, in both directions.

GPT-2 has the same layers as our GPT with bias=True. Its files differ from ours in two ways:

    orientation    a linear map is stored as (in, out), y = x W + b; ours as (out, in), y = x W^T + b
    packing        queries, keys and values are one map h.N.attn.c_attn, (C, 3C); ours are three maps, (C, C)

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
Format: the class GPT2LMHeadModel of https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gpt.config import GPTConfig
from gpt.model import GPT
from workshop.formats.layout import check_settings, own_activation, their_activation
from workshop.tokenizers.huggingface import HFTokenizer

TITLES = {"gpt2": "GPT-2"}  # by model_type
read_tokenizer = HFTokenizer.from_folder
PREFIX = "transformer."  # before every name, except in some older files
HEAD = "lm_head.weight"
EMBEDDING = "wte.weight"
BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # the causal mask, which older files store like a weight
FAN_IN_FAN_OUT = True  # a linear map is stored as (in, out)
PACKED = ("query", "key", "value")  # our parts of c_attn
# The values that these settings must have, if they are given, for the model to be ours.
REQUIRED = {
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "is_causal": True,
    "quantization_config": None,
}
ALIASES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
# Settings that change no result: dropout, those of another head, and those of older versions.
OTHERS = {
    *("embd_pdrop", "attn_pdrop", "resid_pdrop", "reorder_and_upcast_attn", "n_ctx", "n_special"),
    *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"),
    "predict_special_tokens",
}
# GPT-2 small: the values of settings that a config.json omits.
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


def own_config(theirs: Mapping[str, Any]) -> GPTConfig:
    """Our settings from those in a config.json of GPT-2; an alias has precedence, as in transformers.

    Raises: CheckpointError if they describe a different kind of model.
    """
    check_settings(theirs, (), REQUIRED, {*DEFAULTS, *ALIASES, *OTHERS})
    theirs = DEFAULTS | theirs | {name: theirs[alias] for alias, name in ALIASES.items() if alias in theirs}
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
            "activation": own_activation(theirs, "activation_function", DEFAULTS["activation_function"]),
            "norm_eps": theirs["layer_norm_epsilon"],
            "n_inner": 0 if theirs["n_inner"] is None else theirs["n_inner"],
        }
    )


def layer_names(n_layer: int) -> dict[str, str]:
    """GPT-2's name of each part -> ours. `c_attn` also differs in structure: it packs three of our parts.

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


def linear_maps(config: GPTConfig) -> dict[str, tuple[str, ...]]:
    """Our linear maps by the names of GPT-2's, with the prefix: one, or the three parts of c_attn."""
    named = {name: ours for name, ours in layer_names(config.n_layer).items() if "c_" in name}
    return {
        PREFIX + name: tuple(f"{ours}.{part}" for part in PACKED) if name.endswith("c_attn") else (ours,)
        for name, ours in named.items()
    }


def shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of such a model, under GPT-2's names."""
    c, f = config.n_embd, config.n_hidden
    maps = {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, f), "mlp.c_proj": (f, c)}
    found: dict[str, tuple[int, ...]] = {"wte.weight": (config.vocab_size, c), "wpe.weight": (config.block_size, c)}
    for name in layer_names(config.n_layer):
        kind = name.split(".", 2)[-1]
        if kind in maps:
            found |= {f"{name}.weight": maps[kind], f"{name}.bias": maps[kind][1:]}
        elif kind not in ("wte", "wpe"):
            found |= {f"{name}.weight": (c,), f"{name}.bias": (c,)}
    return found


def to_own(theirs: Mapping[str, np.ndarray], config: GPTConfig) -> dict[str, np.ndarray]:
    """The weights under our names and in our orientation, from those under GPT-2's names."""
    ours = {}
    for their_name, our_name in layer_names(config.n_layer).items():
        for kind in ("weight", "bias"):
            array = theirs.get(f"{their_name}.{kind}")
            if array is None:  # embeddings have no bias
                continue
            if "c_" in their_name:  # a linear map
                array = array.T  # (in, out) -> (out, in); the bias, a vector, is unchanged
            if their_name.endswith("c_attn"):
                for part, piece in zip(PACKED, np.split(array, 3), strict=True):
                    ours[f"{our_name}.{part}.{kind}"] = np.ascontiguousarray(piece)
            else:
                ours[f"{our_name}.{kind}"] = np.ascontiguousarray(array)
    return ours


def their_config(config: GPTConfig) -> dict[str, Any]:
    """Our settings under GPT-2's names, as far as it has such settings."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.n_inner or None,
        "activation_function": their_activation(config.activation),
        "layer_norm_epsilon": config.norm_eps,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "tie_word_embeddings": True,
    }


def to_theirs(model: GPT) -> dict[str, np.ndarray]:
    """The weights under GPT-2's names, in its orientation, with zeros for missing biases."""
    ours = model.state_dict()
    dtype = ours["token_embedding.weight"].dtype
    parts = layer_names(model.config.n_layer)
    theirs = {}
    for name, shape in shapes(model.config).items():
        their_part, _, kind = name.rpartition(".")
        our_part = parts[their_part]
        sources = [our_part]
        if their_part.endswith("c_attn"):
            sources = [f"{our_part}.{part}" for part in PACKED]
        if kind == "bias" and f"{sources[0]}.bias" not in ours:
            array = np.zeros(shape, dtype)
        else:
            array = np.concatenate([ours[f"{source}.{kind}"] for source in sources])
        if "c_" in their_part:  # a linear map
            array = array.T  # (out, in) -> (in, out)
        theirs[PREFIX + name] = np.ascontiguousarray(array)
    return theirs
