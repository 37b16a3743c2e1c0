"""Pretrained weights: a folder in Hugging Face's layout becomes our settings, weights and tokenizer.

    config.json          whose model_type says which layout it is, such as GPT-2's, Llama's, BERT's or ViT's
    model.safetensors    the weights, or model.safetensors.index.json and several files that it names
    tokenizer.json       or vocab.txt; or the file that an export of ours writes; or none for a model of pictures, whose
                         class names are in config.json

A layout (`layout.py`) translates the names of settings and weights, such as that in `gpt2.py`: a family of models has
one or several. This file reads.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from extra.pretrained.layout import Layout
from text.tokenizers import tokenizer_from_json
from text.tokenizers.base import Tokenizer
from tinygrad_lite.config import ModelConfig
from tinygrad_lite.errors import CheckpointError
from training.cli.files import MAX_SETTINGS, text_of
from training.tensors import tensors_in

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PEFT_CONFIG = "adapter_config.json"  # in a folder with an adapter in peft's layout
OWN_TOKENIZER = "tinygrad_lite_tokenizer.json"
OLD_NORM = {"gamma": "weight", "beta": "bias"}  # in the names of BERT's first weights, which TensorFlow wrote


def load_pretrained(
    folder: Path, layouts: Mapping[str, Layout]
) -> tuple[str, ModelConfig, dict[str, np.ndarray], Tokenizer | None]:
    """Read a folder in Hugging Face's layout.

    Args:
        layouts: those that can be read, by model_type.
    Returns: the name of the model, the settings, the weights under our names (float16 and bfloat16 become float32), and
        the tokenizer, None if there is no file for one.
    Raises: CheckpointError if a file is missing or damaged, or describes a different kind of model; TokenizerError if
        the tokenizer cannot be used.
    """
    kind, config = read_config(folder / "config.json", layouts)
    layout = layouts[kind]
    layout.check_folder(folder)
    theirs = _read_weights(folder, layout, config)
    if config.n_layer > len(theirs):  # checked before listing names: a damaged config.json may claim millions of layers
        raise CheckpointError(f"{WEIGHTS} holds {len(theirs)} tensors, too few for {config.n_layer} layers")
    layout.complete(theirs, config)
    _check_names_and_shapes(theirs, layout.shapes(config))
    weights = layout.to_own(theirs, config)
    return layout.titles[kind], config, weights, _read_tokenizer(folder, layout, config.vocab_size)


def is_pretrained_folder(path: Path) -> bool:
    """Whether this is a folder in Hugging Face's layout, perhaps with weights in an unsupported format."""
    return (path / "config.json").is_file() or any(path.glob("pytorch_model*.bin")) or (path / INDEX).is_file()


def model_type(folder: Path) -> str:
    """The kind of model that a folder's config.json names, unchecked; GPT-2 if it names none, or cannot be read."""
    try:
        return str(read_json(folder / "config.json").get("model_type", "gpt2"))
    except CheckpointError:
        return "gpt2"


def end_tokens(folder: Path, vocab_size: int, every: bool = False) -> set[int]:
    """The ids that end a text of a folder's model: by generation_config.json, or else config.json; or `every` one."""
    found = [folder / name for name in ("generation_config.json", "config.json") if (folder / name).is_file()]
    named = [read_json(file).get("eos_token_id") for file in found[: None if every else 1]]
    ids = [n for one in named for n in (one if isinstance(one, list) else [one])]
    return {n for n in ids if type(n) is int and 0 <= n < vocab_size}


def read_config(path: Path, layouts: Mapping[str, Layout]) -> tuple[str, ModelConfig]:
    """The model_type in a config.json, and its settings as ours.

    Raises: CheckpointError if the file is missing, is not JSON, or describes a different kind of model.
    """
    if not path.is_file():
        raise CheckpointError(f"there is no {path}: a pretrained model is a folder with config.json and {WEIGHTS}")
    theirs = read_json(path)
    kind = theirs.get("model_type")
    if kind is None:
        raise CheckpointError(f"{path} has no model_type, which says what kind of model it is")
    if kind not in [*layouts]:
        raise CheckpointError(f"{path}: model_type is {kind!r}, but this program supports only {', '.join(layouts)}")
    try:
        return kind, layouts[kind].own_config(theirs)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises: CheckpointError if there is none.
    """
    try:
        data = json.loads(text_of(path, MAX_SETTINGS))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error})") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return data


def _check_names_and_shapes(theirs: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> None:
    missing = [name for name in shapes if name not in theirs]
    unexpected = [name for name in theirs if name not in shapes]
    for title, names, why in (
        ("lacks", missing, "it is not the model of config.json"),
        ("holds the unknown", unexpected, "the architecture in config.json has no such part or head"),
    ):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise CheckpointError(f"{WEIGHTS} {title} {', '.join(names[:5])}{more}: {why}")
    for name, shape in shapes.items():
        if theirs[name].shape != shape:
            raise CheckpointError(f"{WEIGHTS}: {name} has the shape {theirs[name].shape}, config.json says {shape}")


def _read_weights(folder: Path, layout: Layout, config: ModelConfig) -> dict[str, np.ndarray]:
    """The tensors of all weight files, without prefix, without buffers, and without a tied output matrix."""
    weights, buffer = {}, re.compile(f"({re.escape(layout.prefix)})?({layout.buffers})")
    for path in _weight_files(folder):
        for name, array in float_tensors(path, lambda name: not buffer.fullmatch(name)):
            start, dot, last = name.removeprefix(layout.prefix).rpartition(".")
            weights[start + dot + (OLD_NORM.get(last, last) if start.endswith("LayerNorm") else last)] = array
    output, embedding = layout.tied
    head = weights.pop(output, None) if config.tie_weights else None
    if head is not None and not np.array_equal(head, weights.get(embedding, np.empty(0))):
        differ = f"{folder}: {output} differs from {embedding}"
        raise CheckpointError(f"{differ}, but config.json says that the output matrix is tied to the embedding")
    return weights


def _weight_files(folder: Path) -> list[Path]:
    """model.safetensors, or the files that the index names."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file() and (part := min(folder.glob("model-*-of-*.safetensors"), default=None)):
        raise CheckpointError(f"{folder} has {part.name}, but no {INDEX}, which names all parts: copy it too")
    if not (folder / INDEX).is_file():
        raise CheckpointError(
            f"{folder} has no {WEIGHTS}, the only supported format: where transformers and torch are installed, "
            f'convert it with AutoModelForCausalLM.from_pretrained("{folder}").save_pretrained("NEW_FOLDER")'
        )
    places = read_json(folder / INDEX).get("weight_map")
    names = list(places.values()) if isinstance(places, dict) else []
    if not names or not all(isinstance(name, str) and os.path.basename(name) == name for name in names):
        raise CheckpointError(f"{folder / INDEX} does not say which files hold the weights")
    paths = [folder / name for name in dict.fromkeys(names)]
    if missing := [path for path in paths if not path.is_file()]:
        raise CheckpointError(f"there is no {missing[0]}, which {INDEX} names: copy all files of the model")
    return paths


def float_tensors(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a safetensors file by name, as float32 or float64.

    Args:
        wanted: whether to read the tensor of a name.
    Raises: CheckpointError if the file cannot be read, or if one holds other numbers, NaN or infinity.
    """
    try:
        for name, array in tensors_in(path, wanted):
            if array.dtype not in (np.float16, np.float32, np.float64):
                raise CheckpointError(f"{path}: {name} has the type {array.dtype}, which is not floating-point")
            if not np.isfinite(array).all():
                raise CheckpointError(f"{path}: {name} holds NaN or infinity")
            yield name, array.astype(np.float32) if array.dtype == np.float16 else array
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read ({error})") from None


def _read_tokenizer(folder: Path, layout: Layout, vocab_size: int) -> Tokenizer | None:
    path = folder / OWN_TOKENIZER
    if not path.is_file():
        return layout.read_tokenizer(folder, vocab_size)
    tokenizer = tokenizer_from_json(read_json(path))
    if tokenizer.vocab_size != vocab_size:
        raise CheckpointError(f"{path} has {tokenizer.vocab_size} tokens, the model of config.json {vocab_size}")
    return tokenizer
