"""Adapters (LoRA) in the layout of Hugging Face's peft, in both directions.

    adapter_config.json          rank, alpha and other settings
    adapter_model.safetensors    base_model.model.NAME.lora_A.weight (r, in) and ....lora_B.weight (out, r)

where NAME is that of a linear map of the base.

The names of linear maps are those of GPT-2 or of Llama and Qwen3 (`gpt2.py`, `llama.py`), whichever the
base has in Hugging Face's layout. A and B are oriented as here, whatever the orientation of the base's matrix.

GPT-2 has one map c_attn for our query, key and value, so a change to it has one A for all three, and the parts of its B
are stacked. When read, it becomes three changes with the same A:

    B A = [B_q; B_k; B_v] A  ->  B_q A, B_k A, B_v A

Ours have an A each. When written, they become one change of three times the rank, which is exactly the same:

    [s B_q A_q; s B_k A_k; s B_v A_v] = s diag(B_q, B_k, B_v) [A_q; A_k; A_v]

The adapter_config.json may hold settings that are unknown to this program and make the adapter a different one. So each
setting is either translated, or must have a certain value, or is known to change no result; any other is refused by
name, unless it is empty.

Format: the class LoraConfig of https://huggingface.co/docs/peft.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

from extra.adapters.adapter import Adapter, Change, adapter_in, change_of
from extra.gpt.config import GPTConfig
from extra.pretrained import gpt2, llama
from extra.pretrained.layout import Layout
from extra.pretrained.read import PEFT_CONFIG, float_tensors, read_json
from extra.pretrained.write import as_json, checked_settings
from gpt.model import GPT
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.nn import Linear
from training.checkpoint import Checkpoint
from training.model_config import read_model_config

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
TRANSLATED = {"r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora"}
# The values that these settings must have, if they are given. init_lora_weights says how training began: "pissa",
# "olora" and others changed the base too.
REQUIRED = {"peft_type": ("LORA",), "bias": ("none",), "init_lora_weights": (True, False, "gaussian", "orthogonal")}
REQUIRED |= {"layers_pattern": (None, "h", "layers")}  # the name of the list of layers in GPT-2, and in Llama
CHOOSING = ("target_modules", "exclude_modules", "layers_to_transform")  # which linear maps are changed
# Settings that change no result: for training or for other programs.
WITHOUT_EFFECT = {
    *("task_type", "base_model_name_or_path", "auto_mapping", "revision", "peft_version", "inference_mode"),
    *("fan_in_fan_out", "lora_dropout", "megatron_core", "qalora_group_size", "ensure_weight_tying", "runtime_config"),
}


def layout_of(config: GPTConfig) -> Layout:
    """The layout in which a model with these settings is exported: that of a Llama if it has RMS norms."""
    return (llama if config.norm == "rmsnorm" else gpt2).LAYOUT


def read_peft(folder: Path, config: GPTConfig) -> Adapter:
    """Read an adapter for a GPT with these settings.

    Raises: CheckpointError if it cannot be read, has settings that are not supported, or belongs to another model.
    """
    settings = read_json(folder / PEFT_CONFIG)
    try:
        _check_settings(settings)
    except CheckpointError as error:
        raise CheckpointError(f"{folder / PEFT_CONFIG}: {error}") from None
    maps, path, pairs = linear_maps(config), folder / WEIGHTS, {}
    if not path.is_file():
        raise CheckpointError(f"there is no {path}, the only supported format of an adapter's weights")
    for name, array in float_tensors(path):
        found = re.fullmatch(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])\.weight", name)
        if not found or found[1] not in maps:
            raise CheckpointError(f"{path} holds {name}, which belongs to no linear map of the model")
        if not _is_chosen(settings, found[1]):
            raise CheckpointError(f"{path} holds {name}, but {PEFT_CONFIG} does not choose {found[1]} (target_modules)")
        pairs.setdefault(found[1], {})[found[2]] = array
    changes = {}
    for theirs, pair in pairs.items():
        a, b, _ = change_of(path, theirs, pair, 1.0)
        rank, alpha = (_setting(settings, name, theirs) for name in ("r", "lora_alpha"))
        if rank != len(a):
            raise CheckpointError(f"{path}: {theirs} has the rank {len(a)}, but {PEFT_CONFIG} says {short(rank)}")
        scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        if len(b) % len(maps[theirs]):
            raise CheckpointError(f"{path}: lora_B of {theirs} has {len(b)} rows, which are not three equal parts")
        parts = np.split(b, len(maps[theirs]))
        changes |= {ours: (a, part, scale) for ours, part in zip(maps[theirs], parts, strict=True)}
    if not changes:
        raise CheckpointError(f"{path} changes nothing: it holds no tensors")
    return Adapter(folder, changes, {})


def linear_maps(config: GPTConfig) -> dict[str, list[str]]:
    """Our linear maps by their name in the layout of such a model: three for GPT-2's c_attn, one for every other."""
    layout = layout_of(config)
    known = {*layout.parts, *layout.outside} - ({"lm_head"} if config.tie_weights else set())
    maps = [name for name, part in GPT.blueprint(config).named_modules() if isinstance(part, Linear)]
    ours = [f"{name}.weight" for name in maps if name.split(".", 2)[-1] in known]
    return {
        layout.prefix + theirs.removesuffix(".weight"): [name.removesuffix(".weight") for name in names]
        for theirs, names in layout.packed(ours).items()
    }


def _check_settings(settings: Mapping[str, Any]) -> None:
    """Raise CheckpointError if there is a setting that is not supported."""
    for name, allowed in REQUIRED.items():
        value = settings.get(name, allowed[0])
        if not any(value is one or (isinstance(one, str) and value == one) for one in allowed):
            raise CheckpointError(f"{name} is {short(value)}, but this program supports only {allowed[0]!r}")
    for name in CHOOSING[:2]:
        if not all(isinstance(one, str) and re.fullmatch(r"[\w.-]+", one) for one in _names(settings, name)):
            raise CheckpointError(f"{name} is {short(settings[name])}, but this program supports only lists of names")
    known = {*TRANSLATED, *REQUIRED, *CHOOSING, *WITHOUT_EFFECT}
    for name, value in settings.items():
        if name not in known and value not in (None, False, {}, [], ""):
            raise CheckpointError(f"{name} is {short(value)}, a setting that this program does not support")
    if not isinstance(settings.get("use_rslora", False), bool):
        raise CheckpointError(f"use_rslora is {short(settings['use_rslora'])}, not true or false")
    for name, pattern in (("r", "rank_pattern"), ("lora_alpha", "alpha_pattern")):
        table = settings.get(pattern) or {}
        if not isinstance(table, dict) or not all(re.fullmatch(r"[\w.]+", key) for key in table):
            raise CheckpointError(f"{pattern} is {short(table)}, but this program supports only whole names in it")
        for value in (settings.get(name), *table.values()):
            if type(value) not in (int, float) or not 0 < value <= 1e6:
                raise CheckpointError(f"{name} or {pattern} has {short(value)}, which is not a number above 0")


def _names(settings: Mapping[str, Any], name: str) -> list[Any]:
    """The list that a setting is; a single value is one, too."""
    value = settings.get(name)
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_chosen(settings: Mapping[str, Any], part: str) -> bool:
    """Whether the settings choose a linear map: by the end of its name, and by the number of its layer, as in peft."""

    def named(setting: str) -> bool:
        return any(f".{part}".endswith(f".{name}") for name in _names(settings, setting))

    chosen, layers = settings.get("target_modules"), _names(settings, "layers_to_transform")
    found = chosen is None or named("target_modules") or (chosen == "all-linear" and part != "lm_head")
    number = re.search(r"\.(\d+)\.", part)
    return found and not named("exclude_modules") and (not layers or (number and int(number[1]) in layers))


def _setting(settings: Mapping[str, Any], name: str, part: str) -> float:
    """The rank or alpha of a linear map: that of the first name in the pattern that its own name ends with.

    As in peft, each name is a regular expression: a dot stands for any character.
    """
    table = settings.get({"r": "rank_pattern", "lora_alpha": "alpha_pattern"}[name]) or {}
    return next((value for key, value in table.items() if re.match(rf"(.*\.)?({key})$", part)), settings[name])


def peft_files(path: Path, checkpoint: Checkpoint) -> dict[str, bytes]:
    """The files of an adapter in peft's layout, by name.

    Args:
        path: where the checkpoint was read.
    Raises: CheckpointError if it holds no adapter, or more than peft can express, or if its base cannot be exported.
    """
    adapter, config = adapter_in(path, checkpoint), read_model_config(GPTConfig, checkpoint.model)
    checked_settings(layout_of(config), config)  # an adapter is useless if peft cannot have its base
    if adapter.whole:
        raise CheckpointError(
            f"{path} has learned {min(adapter.whole)} as a whole, which is not a change of low rank: fold it into its "
            "base with python -m extra.adapters.merge, and export that"
        )
    tensors, ranks, alphas = {}, {}, {}
    for theirs, ours in linear_maps(config).items():
        parts = [adapter.changes.pop(name, None) for name in ours]
        if any(parts):
            a, b, scale = joined(parts)
            tensors |= {f"{PREFIX}{theirs}.lora_A.weight": a, f"{PREFIX}{theirs}.lora_B.weight": b}
            ranks[theirs], alphas[theirs] = len(a), scale * len(a)
    if adapter.changes:
        raise CheckpointError(f"{path} changes {min(adapter.changes)}, for which the layout of its base has no name")
    rank, alpha = (Counter(table.values()).most_common(1)[0][0] for table in (ranks, alphas))
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": checkpoint.base["path"],
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {name: number for name, number in ranks.items() if number != rank},
        "alpha_pattern": {name: number for name, number in alphas.items() if number != alpha},
        "target_modules": list(ranks),
        "fan_in_fan_out": bool(layout_of(config).transposed),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    return {PEFT_CONFIG: as_json(settings), WEIGHTS: to_bytes(tensors, {"format": "pt"})}


def joined(parts: list[Change | None]) -> Change:
    """One change of maps of equal size side by side, from those of each; None for a map without a change.

    >>> one, two = (np.ones((1, 3)), np.ones((2, 1)), 0.5), (np.full((2, 3), 3.0), np.ones((2, 2)), 0.5)
    >>> a, b, scale = joined([one, None, two])
    >>> (scale * b @ a).astype(int)[:, 0].tolist()
    [0, 0, 0, 0, 3, 3]
    """
    present = [part for part in parts if part]
    a = np.concatenate([part[0] for part in present])
    b = np.block([[one[1] if one is part else np.zeros_like(one[1]) for one in present] for part in parts])
    return a, b, present[0][2]
