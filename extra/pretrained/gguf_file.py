"""GGUF, the format of llama.cpp: one file holds settings, tokenizer and weights of a Llama, the weights in few bits.

    python -m extra.pretrained.gguf_file model.gguf my-llama
    python sample.py my-llama --chat

The first command makes a folder in Hugging Face's layout, which `extra/pretrained/read.py` reads. Two things
differ:

    blocks         Q4_1 keeps 32 weights as numbers q from 0 to 15 with a scale d and a minimum m, w = d q + m: 20 bytes
                   instead of 128. The package `gguf` computes these products; then everything is float32.
    rows of Q, K   llama.cpp rotates neighbouring pairs of a head's numbers, Hugging Face's layout number i together
                   with number i + D/2 (`functional/rotary.py`). So the rows of the two matrices are in a different
                   order, which is undone.

Formats: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from extra.pretrained.llama import LAYOUT
from extra.pretrained.read import WEIGHTS
from extra.pretrained.write import export_command, write_files
from extra.tokenizers.huggingface import SPLITS, starting_with
from tinygrad_lite.errors import CheckpointError, UserError
from training.cli.console import run_command

# Hugging Face's settings, by GGUF's without "llama.".
SETTINGS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
    "rope.dimension_count": "head_dim",
}
OPTIONAL = {"attention.head_count_kv", "vocab_size", "rope.freq_base", "rope.dimension_count"}  # which have defaults
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
# How text is cut into words, by tokenizer.ggml.pre.
CUTTING: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [BYTE_LEVEL],
    "smollm": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
    "llama-bpe": [SPLITS[0], BYTE_LEVEL | {"use_regex": False}],
}
ENDS = ("eos", "eot", "eom")  # the tokens that end a text, a turn or a message
CONTROL, USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    return export_command(argv, "extra.pretrained.gguf_file", convert)


def convert(source: Path, folder: Path) -> str:
    """Write a folder in Hugging Face's layout of Llama: float32 weights, tokenizer, and chat template.

    Args:
        source: a GGUF file of a Llama with a byte-level BPE.
        folder: a new or empty folder.
    Returns: what the file was.
    Raises: UserError if `gguf` is not installed; CheckpointError if the file is damaged, or another kind of model, or
        if the folder cannot be written.
    """
    try:
        import gguf
    except ImportError:
        raise UserError('GGUF needs the package gguf, which is not installed: pip install -e ".[chat]"') from None
    if not source.is_file():
        raise CheckpointError(f"there is no file {source}")
    write_files(folder, {})
    try:
        files, weights = contents(gguf, source)
    except UserError:
        raise
    except Exception as error:  # the package checks little, so a damaged file can raise almost any
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(f"{source} cannot be read as a GGUF file of a Llama ({reason})") from None
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    return f"{source}: a GGUF file of a Llama; converted"


def contents(gguf: Any, source: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts of the folder's files, by name, and the weights under Hugging Face's names.

    Args:
        gguf: the package.
    Raises: CheckpointError if it is another kind of model; any exception if the file is damaged.
    """

    class Reader(gguf.GGUFReader):
        """Refuses to read past the end, where the package would find any number of empty values."""

        def _get(self, offset: int, dtype: Any, count: int = 1, *order: Any, **orders: Any) -> np.ndarray:
            found = super()._get(offset, dtype, count, *order, **orders)
            if len(found) < int(count):
                raise ValueError("it ends too early")
            return found

    reader = Reader(source)
    value = {key: field.contents() for key, field in reader.fields.items()}.get
    kind = value("general.architecture")
    if kind != "llama":
        raise CheckpointError(f"{source} holds a model of the architecture {kind}, but only llama can be read")
    given = {key.removeprefix("llama.") for key in reader.fields if key.startswith("llama.")}
    if unknown := sorted(given - SETTINGS.keys()):
        raise CheckpointError(f"{source}: llama.{unknown[0]} is a setting that this program does not know")
    if missing := sorted(SETTINGS.keys() - given - OPTIONAL):
        raise CheckpointError(f"{source} lacks llama.{missing[0]}, which a Llama needs")
    settings = {name: value(f"llama.{key}") for key, name in SETTINGS.items() if key in given}
    settings.setdefault("num_key_value_heads", settings["num_attention_heads"])
    settings.setdefault("vocab_size", len(value("tokenizer.ggml.tokens") or ()))
    heads = {"attn_q": settings["num_attention_heads"], "attn_k": settings["num_key_value_heads"]}
    if (n_layer := settings["num_hidden_layers"]) > len(reader.tensors):
        raise CheckpointError(f"{source} holds {len(reader.tensors)} tensors, too few for {n_layer} layers")
    names = their_names(gguf, n_layer)
    weights = {}
    for tensor in reader.tensors:
        if tensor.name not in names:
            raise CheckpointError(f"{source} holds the unknown tensor {tensor.name}")
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        if n_head := heads.get(tensor.name.split(".")[-2]):
            array = unpermuted(array, n_head)
        weights[names[tensor.name]] = np.ascontiguousarray(array)
    settings |= {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "eos_token_id": sorted({value(f"tokenizer.ggml.{end}_token_id") for end in ENDS} - {None}),
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
    }
    files = {"config.json": settings, "tokenizer.json": tokenizer(source, value)}
    files["tokenizer_config.json"] = chat_settings(value)
    return {name: json.dumps(data, ensure_ascii=False, indent=1) for name, data in files.items()}, weights


def their_names(gguf: Any, n_layer: int) -> dict[str, str]:
    """Hugging Face's names of a Llama's weights, by GGUF's: blk.0.ffn_down is model.layers.0.mlp.down_proj."""
    known = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, n_layer)
    parts = [f"{LAYOUT.blocks}.{i}.{part}" for i in range(n_layer) for part in LAYOUT.parts.values()]
    return {f"{known[name]}.weight": f"{name}.weight" for name in (*LAYOUT.outside.values(), *parts) if name in known}


def unpermuted(matrix: np.ndarray, n_head: int) -> np.ndarray:
    """The rows (H D, C) of a matrix of queries or keys with pairs (i, i + D/2) instead of (2i, 2i + 1) in each head.

    >>> unpermuted(np.array([[0], [3], [1], [4], [2], [5]]), n_head=1).T
    array([[0, 1, 2, 3, 4, 5]])
    """
    return matrix.reshape(n_head, -1, 2, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def tokenizer(source: Path, value: Callable[..., Any]) -> dict[str, Any]:
    """The contents of a tokenizer.json."""
    family, cutting = value("tokenizer.ggml.model"), value("tokenizer.ggml.pre")
    if family != "gpt2" or cutting not in CUTTING:
        found = f"{source} has a tokenizer of the kind {family}, {cutting}"
        raise CheckpointError(f"{found}, but only gpt2 can be read, with {' or '.join(CUTTING)}")
    tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    begins = value("tokenizer.ggml.add_bos_token", cutting == "llama-bpe")
    bos = value("tokenizer.ggml.bos_token_id") if begins else None
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": number, "content": token, "special": kind == CONTROL, **flags}
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in (CONTROL, USER_DEFINED)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": CUTTING[cutting]},
        "post_processor": None if bos is None else starting_with([(tokens[bos], [bos])]),
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "ignore_merges": cutting == "llama-bpe",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in value("tokenizer.ggml.merges")],
        },
    }


def chat_settings(value: Callable[..., Any]) -> dict[str, Any]:
    """The contents of a tokenizer_config.json: the chat template, and the special tokens that it may name."""
    tokens = value("tokenizer.ggml.tokens")
    ids = {name: value(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    named = {f"{name}_token": tokens[number] for name, number in ids.items() if number is not None}
    return named | {"chat_template": value("tokenizer.chat_template")}


if __name__ == "__main__":
    run_command("extra.pretrained.gguf_file", main, __doc__)
