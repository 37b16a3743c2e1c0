"""The names of the Vision Transformer in Hugging Face's layout, and ours: settings and weights, in both directions.

Our model with a class token and 1-D positions is theirs. Two weights have another shape: their patch embedding is a
convolution, (C, channels, P, P), whose numbers are in the order of ours, (C, channels P P); the class token and the
positions have an axis for the batch. They have no tokenizer: the names of the classes are in config.json.

Pixels are from -1, black, to 1, white, in both programs; a folder whose preprocessor_config.json scales them otherwise,
or cuts pictures, is refused. Where there is such a file, a whole picture is scaled to the model's size.

Reference: Dosovitskiy et al. 2020 (arXiv:2010.11929).
Format: the class ViTForImageClassification of https://huggingface.co/docs/transformers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

import numpy as np

from extra.encoders.vit import ViT, ViTConfig
from extra.pretrained.layout import Renamed, architecture_of, check_settings, check_values, label_names
from extra.pretrained.read import read_json
from extra.tokenizers.labels import LabelTokenizer
from tinygrad_lite.errors import CheckpointError
from training.model_config import read_model_config

TITLES = {"vit": "ViT"}  # by model_type
ARCHITECTURE = "ViTForImageClassification"
PREFIX = "vit."
HEAD = EMBEDDING = ""  # no weight is used twice
BUFFER = re.compile("")  # no name
PREPROCESSOR = "preprocessor_config.json"
BILINEAR = 2  # as Pillow numbers its filters
# Their settings, by ours.
TRANSLATED = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
}
# The values that these settings must have, if they are given, for the model to be ours.
REQUIRED = {"hidden_act": "gelu", "qkv_bias": True}
# Settings that change no result: the last three are for other heads.
OTHERS = {"attention_probs_dropout_prob", "encoder_stride", "pooler_act", "pooler_output_size"}
# Their name of each part of a block, by ours.
PARTS = {
    "mixer_norm": "layernorm_before",
    "mixer.query": "attention.attention.query",
    "mixer.key": "attention.attention.key",
    "mixer.value": "attention.attention.value",
    "mixer.output": "attention.output.dense",
    "mlp_norm": "layernorm_after",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
}
CLASS_TOKEN, POSITIONS = "embeddings.cls_token", "embeddings.position_embeddings"
PATCHES = "embeddings.patch_embeddings.projection"
OUTSIDE = {
    "patch_embedding": PATCHES,
    "class_token": CLASS_TOKEN,
    "position_embedding.weight": POSITIONS,
    "final_norm": "layernorm",
    "head": "classifier",
}


def own_config(theirs: Mapping[str, Any]) -> ViTConfig:
    """Our settings from those in a config.json of ViT.

    Raises: CheckpointError if they describe a different kind of model.
    """
    architecture_of(theirs, [ARCHITECTURE])
    check_settings(theirs, TRANSLATED.values(), REQUIRED, OTHERS)
    settings = {ours: theirs[name] for ours, name in TRANSLATED.items()}
    return read_model_config(
        ViTConfig, settings | {"vocab_size": len(label_names(theirs)), "positions": "1d", "pooling": "cls"}
    )


def check_folder(folder: Path) -> None:
    """Raise CheckpointError if a folder says that pictures are prepared in an unsupported way."""
    path = folder / PREPROCESSOR
    if path.is_file():
        theirs = {name: value for name, value in read_json(path).items() if value is not None}
        side = read_json(folder / "config.json")["image_size"]
        size = {"height": side, "width": side}
        try:
            check_values(theirs, {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255})
            check_values(theirs, {"do_resize": True, "do_center_crop": False, "do_pad": False})
            if theirs.get("size", 224) not in (side, size):
                raise CheckpointError(f"size is {short(theirs.get('size', 224))}, but the model reads {size}")
            if theirs.get("resample", BILINEAR) not in range(6):
                raise CheckpointError(f"resample is {short(theirs['resample'])}, but Pillow knows only 0 to 5")
            for name in ("image_mean", "image_std"):
                found = theirs.get(name, 0.5)
                if any(value != 0.5 for value in (found if isinstance(found, list) else [found])):
                    raise CheckpointError(f"{name} is {short(found)}, but this program supports only 0.5")
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None


def resampling(folder: Path) -> int | None:
    """The filter with which a folder says to scale a whole picture, by Pillow's number; None if it does not say so."""
    path = folder / PREPROCESSOR
    found = read_json(path).get("resample") if path.is_file() else None
    return BILINEAR if found is None and path.is_file() else found


def read_tokenizer(folder: Path, vocab_size: int) -> LabelTokenizer:
    """The names of the classes; one that occurs again, like `crane` in ImageNet, gets its number."""
    names = label_names(read_json(folder / "config.json"))
    counts = Counter(names)
    return LabelTokenizer([f"{name} ({n})" if counts[name] > 1 else name for n, name in enumerate(names)])


def their_config(config: ViTConfig) -> dict[str, Any]:
    """Our settings under their names, as far as they have such settings; without the names of the classes."""
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "vit",
        **{name: {"n_inner": config.n_hidden}.get(ours, getattr(config, ours)) for ours, name in TRANSLATED.items()},
        "attention_probs_dropout_prob": config.dropout,
        **REQUIRED,
    }


def other_shapes(config: ViTConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that they store in a different shape."""
    return {
        CLASS_TOKEN: (1, 1, config.n_embd),
        POSITIONS: (1, config.block_size, config.n_embd),
        f"{PATCHES}.weight": (config.n_embd, config.channels, config.patch_size, config.patch_size),
    }


NAMES = Renamed(ViT, "encoder.layer", PARTS, OUTSIDE, other_shapes)
shapes, to_own = NAMES.shapes, NAMES.to_own


def to_theirs(model: ViT) -> dict[str, np.ndarray]:
    """The weights under their names."""
    return NAMES.to_theirs(model, PREFIX)
