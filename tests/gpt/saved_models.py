"""Checkpoints of small GPTs with random weights, for tests of what reads checkpoints."""

from pathlib import Path

import numpy as np

from gpt.model import GPT
from tests.gpt.configs import GPTConfig
from text.tokenizers.base import Tokenizer
from tinygrad_lite.random import random_key
from training.checkpoint import Checkpoint, save_checkpoint

TEXT = "Es irrt der Mensch, so lang er strebt.\nGrün ist nur des Lebens goldner Baum; süß ruht die Höh. </script>"


def saved_gpt(
    path: Path, tokenizer: Tokenizer, step: int = 5, corpus_sha256: str = "", dataset: str = "", **settings: object
) -> Path:
    """Save a GPT whose weights are far from even, so that mistakes show; another step gives other weights."""
    small = {"block_size": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
    config = GPTConfig(vocab_size=tokenizer.vocab_size, **(small | settings))
    with random_key(step):
        model = GPT(config)
    rng, state = np.random.default_rng(step), model.state_dict()
    weights = {name: np.float32(array + 0.3 * rng.normal(size=array.shape)) for name, array in state.items()}
    return save(path, "gpt", model, weights, tokenizer, step, corpus_sha256, dataset)


def save(path, family, model, weights, tokenizer, step=5, corpus_sha256="", dataset=""):
    """Save a model of any family with these weights."""
    path.parent.mkdir(parents=True, exist_ok=True)
    training = {"dataset": dataset} if dataset else {}
    description = (model.config.to_json(), training, tokenizer.to_json(), step, None, None, corpus_sha256)
    save_checkpoint(path, Checkpoint(family, *description, weights=weights, optimizer={}))
    return path


def padded(tokenizer: Tokenizer, rows: int = 7) -> Tokenizer:
    """The tokenizer of a model with more rows than tokens, as some models with GPT-2's vocabulary have."""
    tokenizer._pieces += [b""] * rows
    tokenizer.vocab_size += rows
    return tokenizer
