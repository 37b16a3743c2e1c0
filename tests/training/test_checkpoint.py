"""Checkpoints are restored bit for bit, contain nothing about the machine, and are never half-written."""

import getpass
import json
import os
import socket
import struct
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.random import keyed_rng
from training.checkpoint import KEY, Checkpoint, load_checkpoint, save_checkpoint


def example() -> Checkpoint:
    rng = keyed_rng(0, "test")
    about = {"family": "gpt", "model": {"n_layer": 2}, "training": {"seed": 1, "batch_size": 3}}
    about |= {"step": 17, "best_loss": 1.25, "best_step": 3, "corpus_sha256": "0" * 64}
    about["tokenizer"] = {"kind": "char", "characters": ["a", "ß"], "specials": ["<unk>"]}
    weights = {"b": rng.standard_normal((3, 4)).astype(np.float32), "a": np.array([-0.0, 1e-45], np.float32)}
    return Checkpoint(**about, weights=weights, optimizer={"exp_avg.b": rng.standard_normal((3, 4))})


def header(path) -> dict:
    """The JSON header of a safetensors file: its length in 8 bytes, then the text."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


@pytest.fixture
def path(tmp_path):
    """The file of the example."""
    save_checkpoint(tmp_path / "last.safetensors", example())
    return tmp_path / "last.safetensors"


WEIGHTS = {"model.w": np.zeros(2, np.float32)}


def changed(path, **changes) -> str:
    """The description in a file with other values, or without those that are None."""
    info = json.loads(header(path)["__metadata__"][KEY]) | changes
    return json.dumps({name: value for name, value in info.items() if name not in changes or value is not None})


def test_everything_is_restored_bit_for_bit(path):
    loaded, original = load_checkpoint(path, optimizer=True), example()
    assert load_checkpoint(path).optimizer == {}  # which only a run that continues needs
    for name in ("family", "model", "training", "tokenizer", "step", "best_loss", "corpus_sha256"):
        assert getattr(loaded, name) == getattr(original, name)
    for part in ("weights", "optimizer"):
        own, other = getattr(loaded, part), getattr(original, part)
        assert own.keys() == other.keys()
        for name in own:
            assert own[name].dtype == other[name].dtype
            assert own[name].tobytes() == other[name].tobytes()


def test_the_same_state_gives_the_same_bytes_and_one_sorted_entry(tmp_path):
    first, second = tmp_path / "a" / "x.safetensors", tmp_path / "b" / "y.safetensors"
    for path in (first, second):
        path.parent.mkdir()
        save_checkpoint(path, example())
    assert first.read_bytes() == second.read_bytes()
    metadata = header(first)["__metadata__"]
    assert list(metadata) == [KEY]
    info = json.loads(metadata[KEY])
    assert (json.dumps(info, sort_keys=True), info["format_version"]) == (metadata[KEY], 1)
    assert set(info["versions"]) == {"numpy", "tinygrad_lite"}


def test_a_checkpoint_contains_neither_host_nor_user_nor_path(path):
    data = path.read_bytes()
    for secret in (str(path.parent), socket.gethostname(), f'"{getpass.getuser()}"', os.getcwd()):
        assert secret.encode() not in data


def test_a_setting_that_was_removed_is_not_read(path):
    save_checkpoint(path, replace(example(), training={"extra": "ding", "average": 5, "seed": 2}))
    assert load_checkpoint(path).training == {"seed": 2}


WRONG = [
    ({"format_version": 2}, "format version 2"),
    ({"step": -1}, "step is -1"),
    *(({"step": step}, "'step'") for step in (None, True)),
    ({"best_loss": "low"}, "'best_loss'"),
    *(({"best_loss": float(loss)}, f"best loss is {loss}") for loss in ("nan", "inf")),
    *(({"best_step": step}, f"best step is {step}, but its step 17") for step in (-1, 18)),
    ({"model": []}, "'model'"),
    *((text, "not JSON") for text in ("", "[" * 100_000, "9" * 10_000)),  # too long a number for Python
    ("[]", "not a JSON object"),
]
WRONG_TENSORS = [
    ({"other.w": np.zeros(2, np.float32)}, "unexpected tensor 'other.w'"),
    ({"model.w": np.zeros(2, np.int8)}, "of type int8"),
    ({"model.w": np.array([1, np.nan], np.float32)}, "'model.w' holds NaN or infinity"),
    (WEIGHTS | {"model.v": np.zeros(2)}, "its weights are of several types"),
]
REFUSED = [(changes, WEIGHTS, reason) for changes, reason in WRONG] + [({}, *row) for row in WRONG_TENSORS]


@pytest.mark.parametrize(("changes", "tensors", "reason"), REFUSED)
def test_a_wrong_description_or_tensor_is_refused_by_its_name(path, changes, tensors, reason):
    description = changes if isinstance(changes, str) else changed(path, **changes)
    save_file(tensors, path, {KEY: description})
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(path)


def test_other_files_are_refused_with_what_they_are(path):
    save_file(WEIGHTS, path)
    with pytest.raises(CheckpointError, match="is a safetensors file, but not a checkpoint of this project"):
        load_checkpoint(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="it is a pointer of Git LFS"):
        load_checkpoint(path)
