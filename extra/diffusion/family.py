"""Masked diffusion as a family of models for train.py and sample.py."""

from collections.abc import Mapping
from typing import ClassVar

from extra.diffusion.model import Diffusion
from extra.diffusion.sample import sample
from extra.diffusion.task import DiffusionOptions, DiffusionTask
from extra.family import ShelfFamily
from gpt.config import GPTConfig


class DiffusionFamily(ShelfFamily):
    """Masked diffusion: it learns from a text, and writes in any order."""

    name = "diffusion"
    title = "masked diffusion"
    about = "Train a model that writes in any order: to uncover hidden tokens, however many are hidden."
    examples: ClassVar[Mapping[str, str]] = {"python train.py diffusion": "Goethe, two minutes on two cores"}
    preset = "diffusion"
    config = GPTConfig
    model = Diffusion
    options = DiffusionOptions
    make_task = DiffusionTask
    sample = staticmethod(sample)
    unexplained = "how a text is written from left to right"


DIFFUSION = DiffusionFamily()
