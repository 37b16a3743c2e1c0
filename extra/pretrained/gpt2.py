"""The names of GPT-2 in Hugging Face's layout, and ours: settings and weights, in both directions.

GPT-2 has the same layers as our GPT with bias=True. Its files differ from ours in two ways:

    orientation    a linear map is stored as (in, out), y = x W + b; ours as (out, in), y = x W^T + b
    packing        queries, keys and values are one map h.N.attn.c_attn, (C, 3C); ours are three maps, (C, C)

Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.
Format: the class GPT2LMHeadModel of https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from extra.pretrained.layout import Renamed, check_settings, own_activation, their_activation
from extra.tokenizers.huggingface import HFTokenizer
from gpt.config import GPTConfig
from gpt.model import GPT
from training.model_config import read_model_config

TITLES = {"gpt2": "GPT-2"}  # by model_type
read_tokenizer = HFTokenizer.from_folder
PREFIX = "transformer."  # before every name, except in some older files
HEAD = "lm_head.weight"
EMBEDDING = "wte.weight"
BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)")  # the causal mask, which older files store like a weight
FAN_IN_FAN_OUT = True  # a linear map is stored as (in, out)
# Its settings, by ours.
TRANSLATED = {
    "vocab_size": "vocab_size",
    "block_size": "n_positions",
    "n_layer": "n_layer",
    "n_head": "n_head",
    "n_embd": "n_embd",
    "n_inner": "n_inner",
    "norm_eps": "layer_norm_epsilon",
}
# What makes our GPT a GPT-2.
FIXED = {"dropout": 0.0, "bias": True, "positions": "learned"}
# The values that these settings must have, if they are given, for the model to be ours.
REQUIRED = {
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "is_causal": True,
    "quantization_config": None,
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
# Its name of each part of a block, by ours.
PARTS = {
    "mixer_norm": "ln_1",
    "mixer.query": "attn.c_attn",
    "mixer.key": "attn.c_attn",
    "mixer.value": "attn.c_attn",
    "mixer.output": "attn.c_proj",
    "mlp_norm": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
OUTSIDE = {"token_embedding": "wte", "position_embedding": "wpe", "final_norm": "ln_f"}
NAMES = Renamed(GPT, "h", PARTS, OUTSIDE)
LINEAR = "c_"  # in the names of all linear maps, and in no other


def own_config(theirs: Mapping[str, Any]) -> GPTConfig:
    """Our settings from those in a config.json of GPT-2.

    Raises: CheckpointError if they describe a different kind of model.
    """
    check_settings(theirs, (), REQUIRED, {*DEFAULTS, *OTHERS})
    theirs = DEFAULTS | theirs
    settings = {ours: theirs[name] for ours, name in TRANSLATED.items()}
    settings["n_inner"] = settings["n_inner"] or 0
    activation = own_activation(theirs, "activation_function", DEFAULTS["activation_function"])
    return read_model_config(GPTConfig, FIXED | settings | {"activation": activation})


def their_config(config: GPTConfig) -> dict[str, Any]:
    """Our settings under GPT-2's names, as far as it has such settings."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{name: getattr(config, ours) for ours, name in TRANSLATED.items()},
        "n_inner": config.n_inner or None,
        "activation_function": their_activation(config.activation),
        **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), config.dropout),
        "tie_word_embeddings": True,
    }


def packed(ours: Iterable[str]) -> dict[str, list[str]]:
    """What each of GPT-2's weights holds, by its name: three of our weights in `c_attn`, one in all others.

    >>> packed(["blocks.0.mixer.query.bias", "blocks.0.mixer.key.bias"])
    {'h.0.attn.c_attn.bias': ['blocks.0.mixer.query.bias', 'blocks.0.mixer.key.bias']}
    """
    found: dict[str, list[str]] = {}
    for name, theirs in NAMES.names(ours).items():
        found.setdefault(theirs, []).append(name)
    return found


def shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight of such a model, under GPT-2's names."""
    ours = {name: weight.shape for name, weight in GPT.blueprint(config).named_parameters()}
    found = {}
    for theirs, names in packed(ours).items():
        rows, *columns = ours[names[0]]
        shape = (len(names) * rows, *columns)
        found[theirs] = shape[::-1] if LINEAR in theirs else shape
    return found


def to_own(theirs: Mapping[str, np.ndarray], config: GPTConfig) -> dict[str, np.ndarray]:
    """The weights under our names and in our orientation, from those under GPT-2's names."""
    ours = {}
    for name, parts in packed(name for name, _ in GPT.blueprint(config).named_parameters()).items():
        array = theirs[name].T if LINEAR in name else theirs[name]  # (in, out) -> (out, in)
        pieces = np.split(array, len(parts))
        ours |= {part: np.ascontiguousarray(piece) for part, piece in zip(parts, pieces, strict=True)}
    return ours


def to_theirs(model: GPT) -> dict[str, np.ndarray]:
    """The weights under GPT-2's names, in its orientation, with zeros for missing biases."""
    needed, found = GPT.blueprint(replace(model.config, bias=True)).named_parameters(), model.state_dict()
    dtype = found["token_embedding.weight"].dtype
    ours = {name: np.zeros(weight.shape, dtype) for name, weight in needed} | found
    theirs = {}
    for name, parts in packed(ours).items():
        array = np.concatenate([ours[part] for part in parts])
        theirs[PREFIX + name] = np.ascontiguousarray(array.T if LINEAR in name else array)
    return theirs
