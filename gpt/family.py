"""The GPT, a decoder-only Transformer, as a family of models for train.py and sample.py."""

from typing import ClassVar

from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.options import GPTOptions
from gpt.sample import sample
from gpt.task import TextTask
from training.family import Family


class GPTFamily(Family):
    """The GPT: it learns from a text, and continues a prompt."""

    name = "gpt"
    title = "the GPT"
    about = "Train a GPT on text. Without options: the preset goethe, or one whose text is available."
    examples: ClassVar = {
        "python train.py": "the preset goethe: two minutes on two cores",
        "python train.py --text my.txt": "your own text; the run is in out/my",
        "python train.py --resume": "continue the run of python train.py",
    }
    preset = "goethe"
    config = GPTConfig
    model = GPT
    options = GPTOptions
    make_task = TextTask
    sample = staticmethod(sample)


FAMILY = GPTFamily()
