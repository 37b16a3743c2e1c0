"""Trained GPTs: checkpoints, folders in the layouts of GPT-2, Llama and Qwen, and smollm2, which is fetched."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from extra.chat import smollm2
from extra.encoders.family import BERT, VIT
from extra.family import ShelfFamily
from extra.gpt.config import GPTConfig
from extra.pretrained import gpt2, llama
from extra.pretrained.peft import read_peft
from extra.pretrained.read import PEFT_CONFIG
from gpt.family import GPTFamily
from tinygrad_lite.config import ModelConfig


class PretrainedGPT(ShelfFamily, GPTFamily):
    """The GPT with weights of other programs."""

    config = GPTConfig
    layouts: ClassVar = {kind: layout for layout in (gpt2.LAYOUT, llama.LAYOUT) for kind in layout.titles}
    fetched: ClassVar = {"smollm2": smollm2}
    read_peft = staticmethod(read_peft)

    def has_layout(self, kind: str) -> bool:
        """Whether the family reads folders of this kind; it is also asked to read those that no family knows."""
        return not any(kind in family.layouts for family in (BERT, VIT))

    def has(self, path: Path) -> bool:
        """Whether there is a trained GPT at a path, or an adapter for one."""
        return path.suffix == ".gguf" or os.path.isfile(path / PEFT_CONFIG) or super().has(path)

    def fit(self, weights: Mapping[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
        """The weights for a model of these settings; new special tokens get the mean of all rows of the tables."""
        found = super().fit(weights, config)
        for name in ("token_embedding.weight", "lm_head.weight"):
            if name in found and (missing := config.vocab_size - len(found[name])) > 0:
                found[name] = np.concatenate([found[name], found[name].mean(0, keepdims=True).repeat(missing, 0)])
        return found


load_trained = PretrainedGPT().load
