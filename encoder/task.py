"""The family of encoders for text, for train.py and sample.py: hidden words, and labels."""

from __future__ import annotations

from encoder.bert import Bert, without_head
from encoder.config import BertConfig
from encoder.labels import LabelsTask
from encoder.options import BertOptions
from encoder.words import WordsTask
from workshop.run.family import Family, Task
from workshop.tokenizers.base import Tokenizer


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the options' objective."""
    return (LabelsTask if options.objective == "labels" else WordsTask)(options, tokenizer)


FAMILY = Family(
    name="bert",
    title="BERT",
    about="Train an encoder on text: to predict hidden words, or labels.",
    examples={
        "python train.py bert-goethe": "hidden words of Goethe, seven minutes on two cores",
        "python train.py bert-reviews": "hidden words of film reviews",
        "python train.py classify --init_from out/bert-reviews": "then: is a review positive?",
    },
    preset="bert-goethe",
    config=BertConfig,
    model=Bert,
    options_at="encoder.options:BertOptions",
    task_at="encoder.task:make_task",
    speak_at="encoder.reading:speak",
    adapt=without_head,
)
