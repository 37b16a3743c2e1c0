"""The GPT, a decoder-only Transformer, as a family of models for train.py and sample.py."""

from collections.abc import Mapping

import numpy as np

from extra.chat import smollm2
from extra.pretrained import gpt2, llama
from extra.pretrained.peft import read_peft
from extra.tokenizers.others import register
from gpt.config import GPTConfig
from gpt.model import GPT
from gpt.options import GPTOptions
from gpt.sample import speak
from gpt.task import make_task
from training.family import Family


def with_new_tokens(weights: Mapping[str, np.ndarray], config: GPTConfig) -> dict[str, np.ndarray]:
    """The weights for a vocabulary with additional special tokens: each new row is the mean of the others."""
    found = dict(weights)
    for name in ("token_embedding.weight", "lm_head.weight"):
        if name in found and (missing := config.vocab_size - len(found[name])) > 0:
            found[name] = np.concatenate([found[name], found[name].mean(0, keepdims=True).repeat(missing, 0)])
    return found


register()
FAMILY = Family(
    name="gpt",
    title="the GPT",
    about="Train a GPT on text. Without options: the preset goethe, or one whose text is available.",
    examples={
        "python train.py": "the preset goethe: two minutes on two cores",
        "python train.py --text my.txt": "your own text; the run is in out/my",
        "python train.py --resume": "continue the run of python train.py",
    },
    preset="goethe",
    config=GPTConfig,
    model=GPT,
    options=GPTOptions,
    task=make_task,
    speak=speak,
    adapt=with_new_tokens,
    layouts={kind: layout for layout in (gpt2.LAYOUT, llama.LAYOUT) for kind in layout.titles},
    read_peft=read_peft,
    fetched={"smollm2": smollm2},
)
