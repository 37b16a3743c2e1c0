"""Load a trained GPT from a checkpoint, a run's folder, or a folder in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.pretrained import INDEX, load_pretrained
from gpt.smollm2 import NAME, smollm2_folder
from tinygrad_lite.cli.errors import CheckpointError
from tinygrad_lite.training.model_spec import Trained, read_trained


def load_trained(path: Path) -> Trained:
    """Read a trained GPT.

    Args:
        path: a checkpoint; a folder in Hugging Face's layout, which has a config.json; any other folder, whose newest
            checkpoint is read; or smollm2, if there is nothing of this name.
    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    if is_pretrained(path):
        if not path.exists():
            path = smollm2_folder()
        title, config, weights, tokenizer = load_pretrained(path)
        if tokenizer is None:
            raise CheckpointError(
                f"{path} has no tokenizer: put the tokenizer.json (or vocab.json and merges.txt) of its model beside "
                "its config.json"
            )
        about = f"{path}: {title} with {GPT.blueprint(config).num_parameters():,} parameters"
        return Trained(path, about, GPT, config, tokenizer, weights)
    return read_trained(path, "gpt", GPTConfig, GPT)


def is_pretrained(path: Path) -> bool:
    """Whether this is a folder in Hugging Face's layout, perhaps with weights in an unsupported format; or smollm2."""
    if path == Path(NAME) and not path.exists():
        return True
    return (path / "config.json").is_file() or any(path.glob("pytorch_model*.bin")) or (path / INDEX).is_file()
