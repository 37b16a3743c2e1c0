"""Adapters in files: what a run has learned for part of a model, which means nothing without its base.

A run with `--lora_rank` or `--freeze` writes into its checkpoints (checkpoint.py) only what learns:

    model.blocks.0.mixer.query.lora_A.weight     (r, n)   a change of a matrix of the base (adapt.py): W + alpha / r B A
    model.blocks.0.mixer.query.lora_B.weight     (m, r)
    model.label_head.weight                               a parameter that replaces the base's, or that it lacks

and in `base` the path of the base, the SHA-256 of its weights, alpha, and how the weights were quantized, if they were.
So the file is small, and no other base can be used by mistake. When it is read, everything is folded into the base's
weights, which results in an ordinary model; or, if the base is to be quantized, the changes stay separate from it.
"""

import hashlib
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinygrad_lite.adapt import low_rank_change
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.quantize import KINDS
from training.checkpoint import Checkpoint

Change = tuple[np.ndarray, np.ndarray, float]  # A (r, n), B (m, r) and s: the matrix of the base becomes W + s B A


class Adapter(NamedTuple):
    """What is added to the weights of a base.

    Attributes:
        path: where it was read.
        changes: by the name of a linear map, the change of its matrix.
        whole: parameters that replace those of the base.
    """

    path: Path
    changes: dict[str, Change]
    whole: dict[str, np.ndarray]

    def folded_into(self, weights: Mapping[str, np.ndarray], beside: bool = False) -> dict[str, np.ndarray]:
        """The weights of the adapted model.

        Args:
            beside: leave out the changes of matrices, which are to stay separate; they are checked all the same.
        Raises: CheckpointError if a part of the adapter belongs to nothing in them.
        """
        result = dict(weights)
        parts = {name: array.shape for name, array in self.whole.items()}
        parts |= {f"{name}.weight": (len(b), a.shape[1]) for name, (a, b, _) in self.changes.items()}
        for name, shape in parts.items():
            what = f"{self.path} changes {name}"
            if name not in result:
                raise CheckpointError(f"{what}, which its base does not have")
            if (own := result[name].shape) != shape:
                raise CheckpointError(f"{what} as if its shape were {shape}, but in its base it is {own}")
        result |= {name: array.astype(result[name].dtype) for name, array in self.whole.items()}
        for name, (a, b, scale) in self.changes.items():
            matrix = result[f"{name}.weight"]
            with np.errstate(all="ignore"):
                changed = matrix + low_rank_change(a.astype(matrix.dtype), b.astype(matrix.dtype), scale)
            if not np.isfinite(changed).all():
                raise CheckpointError(f"{self.path}: with its change, {name} holds NaN or infinity")
            if not beside:
                result[f"{name}.weight"] = changed
        return result


def adapter_in(path: Path, checkpoint: Checkpoint) -> Adapter:
    """The adapter that a checkpoint holds.

    Raises: CheckpointError if it holds a whole model, half of a change, or nothing.
    """
    alpha = base_of(path, checkpoint.base)["alpha"]
    if not checkpoint.weights:
        raise CheckpointError(f"{path} changes nothing: it holds no tensors")
    pairs: dict[str, dict[str, np.ndarray]] = {}
    whole = {}
    for name, array in checkpoint.weights.items():
        if found := re.fullmatch(r"(.+)\.lora_([AB])\.weight", name):
            pairs.setdefault(found[1], {})[found[2]] = array
        else:
            whole[name] = array
    return Adapter(path, {name: change_of(path, name, pair, alpha) for name, pair in pairs.items()}, whole)


def change_of(path: Path, name: str, pair: Mapping[str, np.ndarray], alpha: float) -> Change:
    """The change of a matrix from its two halves, "A" and "B".

    Raises: CheckpointError if one is missing, or if they do not fit together.
    """
    if len(pair) < 2:
        raise CheckpointError(f"{path}: {name} has lora_{min(pair)} but not the other half of its change")
    a, b = pair["A"], pair["B"]
    if a.ndim != 2 or b.ndim != 2 or not len(a) == b.shape[1] > 0:
        halves = f"lora_A {a.shape} and lora_B {b.shape}"
        raise CheckpointError(f"{path}: {name} has {halves}, but they must be (r, in) and (out, r)")
    return a, b, alpha / len(a)


def base_of(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint says about its base, checked.

    Raises: CheckpointError if it says nothing, or something invalid.
    """
    if not facts:
        raise CheckpointError(f"{path} is a whole model, not an adapter: name it alone, without --adapter")
    place, sha256, alpha = (facts.get(name) for name in ("path", "sha256", "alpha"))
    if (
        not (isinstance(place, str) and place and place.isprintable())
        or not (isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256))
        or not (type(alpha) in (int, float) and 0 < alpha <= 1e6)
    ):
        raise CheckpointError(f"{path}: its description of its base cannot be used: {reprlib.repr(dict(facts))}")
    if (kind := facts.get("quantize")) is not None and not (isinstance(kind, str) and kind in KINDS):
        quantized = f"{path}: its base was quantized as {reprlib.repr(kind)}"
        raise CheckpointError(f"{quantized}, which this program does not know: only as {', '.join(KINDS)}")
    return {"path": place, "sha256": sha256, "alpha": float(alpha), "quantize": kind}


def fingerprint(weights: Mapping[str, np.ndarray]) -> str:
    """The SHA-256 of weights: of their names, types, shapes and values, in the order of the names.

    >>> one, other = np.zeros(2), np.ones((1, 3))
    >>> fingerprint({"a": one, "b": other}) == fingerprint({"b": other, "a": one})
    True
    >>> fingerprint({"b": other}) == fingerprint({"b": other.T})
    False
    """
    total = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        total.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        total.update(array.reshape(-1).view(np.uint8))
    return total.hexdigest()
