"""Load a trained GPT: from a checkpoint, a run's folder, a folder in Hugging Face's layout, or by the name smollm2."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from gpt.config import GPTConfig
from gpt.family import FAMILY
from gpt.formats import gpt2 as gpt2_layout
from gpt.formats import llama as llama_layout
from workshop.run.family import Trained


def layout_of(config: GPTConfig) -> ModuleType:
    """The layout in which a model with these settings is exported: that of a Llama if it has RMS norms."""
    return llama_layout if config.norm == "rmsnorm" else gpt2_layout


def load_trained(path: Path) -> Trained:
    """Read a trained GPT.

    Args:
        path: a checkpoint; a folder in Hugging Face's layout, which has a config.json; any other folder, whose newest
            checkpoint is read; or smollm2.
    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    return FAMILY.load(path)
