"""A trained GPT, wherever it is from: one of our checkpoints, a run's folder, or a folder in GPT-2's layout.

`sample.py` writes with it, `train.py --init_from` goes on from it, `gpt/baselines.py` measures it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.pretrained import load_gpt2
from tinygrad_lite.checkpoint import describe, load_checkpoint
from tinygrad_lite.errors import CheckpointError
from tinygrad_lite.run import newest_checkpoint
from tinygrad_lite.text.tokenizer import Tokenizer


@dataclass
class Trained:
    """Settings, weights and tokenizer that belong together.

    Attributes:
        about: one line for people: where it is from, and what it is.
        corpus_sha256: the hash of the text that it learned from; empty if nobody knows.
    """

    path: Path
    about: str
    config: GPTConfig
    tokenizer: Tokenizer
    weights: dict[str, np.ndarray] = field(repr=False)
    corpus_sha256: str = ""

    def make_model(self, device: str = "cpu") -> GPT:
        """The model, ready to predict: without dropout.

        Raises: CheckpointError if the weights do not fit the settings.
        """
        model = GPT.from_weights(self.config, self.weights, device)
        model.eval()
        return model


def load_trained(path: Path) -> Trained:
    """Read a trained GPT.

    Args:
        path: a checkpoint; a folder with a config.json, which is one in GPT-2's layout; or any other folder, of which
            the newest checkpoint is taken.
    Raises: CheckpointError or TokenizerError with the reason if there is none or if it cannot be used.
    """
    if (path / "config.json").is_file() or any(path.glob("pytorch_model*.bin")):
        config, weights, tokenizer = load_gpt2(path)
        if tokenizer is None:
            raise CheckpointError(
                f"{path} has no tokenizer: put the tokenizer.json (or vocab.json and merges.txt) of its model beside "
                "its config.json"
            )
        about = f"{path}: GPT-2 with {config.num_parameters():,} parameters"
        return Trained(path, about, config, tokenizer, weights)
    if path.is_dir():
        path = newest_checkpoint(path)
    checkpoint = load_checkpoint(path)
    if checkpoint.family != "gpt":
        raise CheckpointError(f"{path} holds a model of the family {checkpoint.family!r}, not a GPT")
    config = GPTConfig.from_json(checkpoint.model)
    tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
    if tokenizer.vocab_size != config.vocab_size:
        raise CheckpointError(f"{path}: its tokenizer has {tokenizer.vocab_size} tokens, its model {config.vocab_size}")
    about = f"{path}: {describe(checkpoint)}"
    return Trained(path, about, config, tokenizer, checkpoint.weights, checkpoint.corpus_sha256)
