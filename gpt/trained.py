"""Load a trained GPT: from a checkpoint, a run's folder, a folder in Hugging Face's layout, or by the name smollm2."""

from __future__ import annotations

from pathlib import Path

from gpt.family import FAMILY
from training.family import Trained


def load_trained(path: Path) -> Trained:
    """Read a trained GPT.

    Args:
        path: a checkpoint; a folder in Hugging Face's layout, which has a config.json; any other folder, whose newest
            checkpoint is read; or smollm2.
    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    return FAMILY.load(path)
