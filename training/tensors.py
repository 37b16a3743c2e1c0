"""The tensors of safetensors files, read one at a time.

Format: https://huggingface.co/docs/safetensors
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import safetensors

from training.cli.files import refuse_pointer

# Types as safetensors calls them, and as a file's bytes are read; a bfloat16 is the upper half of a float32.
STORED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
STORED |= {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}  # for buffers


def tensors_in(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors of a safetensors file by name; bfloat16, which NumPy lacks, as float32.

    The file's header, JSON preceded by its length in 8 bytes, says where the numbers are. They are read like any other
    file, since `get_tensor` maps it into memory first, where it would remain alongside the tensors until the last one
    is read.

    Args:
        wanted: whether to read the tensor of a name.
    Raises: ValueError for a type that is not read, such as float8.
    """
    refuse_pointer(path)
    with safetensors.safe_open(path, framework="numpy") as file, path.open("rb") as raw:  # the first checks the header
        start = 8 + int.from_bytes(raw.read(8), "little")
        header = json.loads(raw.read(start - 8))
        for name in file.keys():  # noqa: SIM118 (not a dict)
            if not wanted(name):
                continue
            kind = STORED.get(header[name]["dtype"])
            if kind is None:
                raise ValueError(f"{name} is of the type {header[name]['dtype']}: convert the model to bfloat16 first")
            array = np.empty(header[name]["shape"], kind)
            raw.seek(start + header[name]["data_offsets"][0])
            if raw.readinto(array) != array.nbytes:
                raise ValueError(f"the file ends within {name}")
            yield name, (array.astype(np.uint32) << 16).view(np.float32) if kind == "<u2" else array
