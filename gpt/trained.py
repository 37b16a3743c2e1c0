"""Load a trained GPT from a checkpoint, a run's folder, or a folder in GPT-2's layout."""

from __future__ import annotations

from pathlib import Path

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.pretrained import load_gpt2
from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.training.model_spec import Trained, read_trained


def load_trained(path: Path) -> Trained:
    """Read a trained GPT.

    Args:
        path: a checkpoint; a folder in GPT-2's layout, which has a config.json; or any other folder, whose newest
            checkpoint is read.
    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    if is_gpt2(path):
        config, weights, tokenizer = load_gpt2(path)
        if tokenizer is None:
            raise CheckpointError(
                f"{path} has no tokenizer: put the tokenizer.json (or vocab.json and merges.txt) of its model beside "
                "its config.json"
            )
        about = f"{path}: GPT-2 with {GPT.blueprint(config).num_parameters():,} parameters"
        return Trained(path, about, GPT, config, tokenizer, weights)
    return read_trained(path, "gpt", GPTConfig, GPT)


def is_gpt2(path: Path) -> bool:
    """Whether this is a folder in GPT-2's layout, perhaps with weights in an unsupported format."""
    return (path / "config.json").is_file() or any(path.glob("pytorch_model*.bin"))
