"""The GPT as a family of models, for train.py and sample.py."""

from gpt.config import GPTConfig
from gpt.model import GPT
from workshop.run.family import Family

FAMILY = Family(
    name="gpt",
    title="the GPT",
    about="Train a GPT on text. Without options: the preset goethe.",
    examples={
        "python train.py": "the preset goethe: two minutes on two cores",
        "python train.py --text my.txt": "your own text; the run is in out/my",
        "python train.py --resume": "continue the run in out/goethe",
    },
    preset="goethe",
    config=GPTConfig,
    model=GPT,
    options_at="gpt.options:GPTOptions",
    task_at="gpt.task:make_task",
    speak_at="gpt.speaking:speak",
    peft_at="gpt.formats.peft:read_peft",
)
