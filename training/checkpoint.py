"""Checkpoints: everything needed to continue a run or to sample from its model, in one safetensors file.

The file holds tensors and one metadata entry with sorted JSON:

    model.<name>            the weights
    optimizer.<name>        the optimizer's state, such as optimizer.exp_avg.<name>
    tinygrad_lite (JSON)    format version, family, settings of the model and of the run, tokenizer, step, best loss,
                            hash of the text, versions of the libraries

For a run that learns only part of a model (`--freeze`, `--lora_rank`), the weights are that part, and the JSON names
the base to which it belongs, which has the tokenizer too unless its tokens have new names: see `adapters.py`.

It contains no time or host, and no path except a base's, so the same run produces the same bytes. It contains no
pickle, so loading an untrusted file runs no code.

Format: https://huggingface.co/docs/safetensors, read and written by the `safetensors` package.
"""

import contextlib
import json
import math
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes

from tinygrad_lite.errors import CheckpointError, counted
from tinygrad_lite.version import VERSION
from training.cli.files import refuse_pointer, write_atomically
from training.cli.options import fields_of, is_preset
from training.tensors import tensors_in

FORMAT_VERSION = 1
KEY = "tinygrad_lite"
TENSORS = ("weights", "optimizer")  # the fields of a checkpoint that are not in the JSON
# Settings of a run that are not read. Version 0.2.0 had `extra`, more sentence pairs to learn from: without them
# --resume finds a different text from the run's, and refuses it. Until 0.3.0 `average` made one more checkpoint at
# the end of a run.
REMOVED = {"extra", "average"}


@dataclass
class Checkpoint:
    """The state of a run after `step` updates."""

    family: str  # which model: "gpt"
    model: dict  # settings of the model
    training: dict  # settings of the run, without paths
    tokenizer: dict
    step: int
    best_loss: float | None  # lowest validation loss so far, in nats per token; none before the first evaluation
    best_step: int | None  # the step of that evaluation
    corpus_sha256: str
    weights: dict[str, np.ndarray] = field(repr=False)
    optimizer: dict[str, np.ndarray] = field(repr=False)
    base: dict = field(default_factory=dict)  # the weights to which an adapter belongs; empty for a whole model


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint so that a crash at any moment leaves the old file or the new one, never a partial one.

    Raises: CheckpointError if it cannot be written; an older file of that name is then intact.
    """
    info = {
        "format_version": FORMAT_VERSION,
        "versions": {"tinygrad_lite": VERSION, "numpy": np.__version__},
        **{name: value for name, value in vars(checkpoint).items() if name not in TENSORS},
    }
    tensors = {f"model.{name}": np.ascontiguousarray(array) for name, array in checkpoint.weights.items()}
    state = {name: array for name, array in checkpoint.optimizer.items() if name != "step"}  # which is in the JSON
    tensors |= {f"optimizer.{name}": np.ascontiguousarray(array) for name, array in state.items()}
    save_file(path, to_bytes(tensors, {KEY: json.dumps(info, sort_keys=True)}))


def save_file(path: Path, data: bytes) -> None:
    """Replace a file by new contents, all or nothing (`write_atomically`).

    Raises: CheckpointError if it cannot be written.
    """
    try:
        write_atomically(path, data)
        make_newest(path)
    except OSError as error:
        advice = missing_folder(path) or (
            f" ({error.strerror}): the previous file is intact; make room, then --resume if the run has ended"
        )
        raise CheckpointError(f"cannot write {path}{advice}") from None


def missing_folder(path: Path) -> str:
    """The end of an error message if the folder of a file is missing; else empty."""
    if path.parent.is_dir():
        return ""
    return f": the folder {path.parent} was removed or renamed; nothing can be saved until it is back"


def make_newest(path: Path) -> None:
    """Give a new file a later time than the checkpoints next to it, even if the clock was set back meanwhile."""
    with contextlib.suppress(OSError):  # one of them may be deleted meanwhile; the time is not worth an error
        latest = max((other.stat().st_mtime_ns for other in path.parent.glob("*.safetensors")), default=0)
        if latest > path.stat().st_mtime_ns:
            os.utime(path, ns=(latest + 1, latest + 1))


def fact_in(path: Path, name: str) -> Any:
    """A field of a checkpoint's description, such as its family, without reading its weights; None if there is none."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {})[KEY])[name]
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None


def no_checkpoint(path: Path) -> CheckpointError:
    """The error if there is no checkpoint at a path; it says how to train one."""
    name = path.parent.name if path.suffix else path.name  # a run is in out/<preset>/
    preset = f" {name}" if is_preset(name) else ""
    return CheckpointError(f"there is no checkpoint {path}; train one with: python train.py{preset}")


def load_checkpoint(path: Path, optimizer: bool = False) -> Checkpoint:
    """Read a checkpoint.

    Args:
        optimizer: read the optimizer's state too, which only a continued run needs: two numbers for each weight.
    Raises: CheckpointError with the reason if it is missing, damaged, or from another program.
    """
    if not path.is_file():
        raise no_checkpoint(path)
    try:
        refuse_pointer(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if KEY not in metadata:
                raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of this project")
        tensors = dict(tensors_in(path, lambda name: optimizer or not name.startswith("optimizer.")))
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a readable checkpoint ({error}): truncated, or another format") from None
    try:
        info = json.loads(metadata[KEY])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its description is not JSON ({error})") from None
    return _checked(path, info, tensors)


def _checked(path: Path, info: Any, tensors: Mapping[str, np.ndarray]) -> Checkpoint:
    """The checkpoint from the contents of a file, every field checked."""
    if not isinstance(info, dict):
        raise CheckpointError(f"{path}: its description is not a JSON object")
    if info.get("format_version") != FORMAT_VERSION:
        version = reprlib.repr(info.get("format_version"))
        raise CheckpointError(f"{path} has format version {version}, this program reads version {FORMAT_VERSION}")
    info.setdefault("base", {})  # which version 0.1.0 did not write
    kinds = {name: kind for name, kind in fields_of(Checkpoint)[1].items() if name not in TENSORS}
    for name, kind in kinds.items():
        if name not in info or not isinstance(info[name], kind) or isinstance(info[name], bool):
            raise CheckpointError(f"{path}: the field {name!r} of its description is missing or of the wrong type")
    info["training"] = {name: value for name, value in info["training"].items() if name not in REMOVED}
    if info["step"] < 0:
        raise CheckpointError(f"{path}: its step is {info['step']}")
    if not 0 <= (info["best_loss"] or 0) < math.inf:  # after NaN, no later loss could be the best
        raise CheckpointError(f"{path}: its best loss is {info['best_loss']}")
    if (info["best_loss"] is None) != (info["best_step"] is None) or not 0 <= (info["best_step"] or 0) <= info["step"]:
        raise CheckpointError(f"{path}: its best step is {info['best_step']}, but its step {info['step']}")
    parts: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}}
    for name, array in tensors.items():
        part, _, rest = name.partition(".")
        if part not in parts or array.dtype not in (np.float32, np.float64):
            raise CheckpointError(f"{path}: it holds an unexpected tensor {name!r} of type {array.dtype}")
        if not np.isfinite(array).all():
            raise CheckpointError(f"{path}: the tensor {name!r} holds NaN or infinity")
        parts[part][rest] = array
    if len({array.dtype for array in parts["model"].values()}) > 1:  # converting one would lose digits, or overflow
        raise CheckpointError(f"{path}: its weights are of several types")
    return Checkpoint(weights=parts["model"], optimizer=parts["optimizer"], **{name: info[name] for name in kinds})


def describe(checkpoint: Checkpoint) -> str:
    """One line about a checkpoint: family, size, step, and its validation loss if it was saved after its evaluation.

    `last` is saved before its evaluation, and has only the best loss of earlier ones.
    """
    numbers, step = sum(array.size for array in checkpoint.weights.values()), checkpoint.best_step
    loss = "" if step is None else f"{checkpoint.best_loss:.4f} nats"
    if step == checkpoint.step:
        loss = f", validation loss {loss}"
    elif loss:
        loss = f"; the best validation loss before was {loss}, at step {step:,}"
    what = f"adapter of a {checkpoint.family}" if checkpoint.base else checkpoint.family
    if kind := checkpoint.base.get("quantize"):
        what += f" in {kind}"
    return f"{what} with {counted(numbers, 'parameter')} after {counted(checkpoint.step, 'step')}{loss}"
