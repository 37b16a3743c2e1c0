"""The GPT, a decoder-only Transformer, as a family of models for train.py and sample.py."""

from collections.abc import Mapping
from typing import Any, ClassVar

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.options import GPTOptions
from gpt.sample import sample
from gpt.task import TextTask
from text.tokenizers.base import Tokenizer
from training.family import Family, Trained
from training.task import Task


class GPTFamily(Family):
    """The GPT: it learns from a text, and continues a prompt."""

    name = "gpt"
    title = "the GPT"
    about = "Train a GPT on text. Without options: the preset goethe, or one whose text is available."
    examples: ClassVar[Mapping[str, str]] = {
        "python train.py": "the preset goethe: two minutes on two cores",
        "python train.py --text my.txt": "your own text; the run is in out/my",
        "python train.py --resume": "continue the run of python train.py",
    }
    preset = "goethe"
    config = GPTConfig
    model = GPT
    options = GPTOptions

    def make_task(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> Task:
        """A training text."""
        return TextTask(options, tokenizer)

    def sample(self, options: Any, given: Mapping[str, Any], trained: Trained, model: GPT) -> None:
        """Continue a prompt, or measure a loss."""
        sample(options, given, trained, model)


FAMILY = GPTFamily()
