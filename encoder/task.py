"""What an encoder of text learns: hidden words, or labels."""

from __future__ import annotations

from encoder.labels import LabelsTask
from encoder.options import BertOptions
from encoder.words import WordsTask
from workshop.run.family import Task
from workshop.tokenizers.base import Tokenizer


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the options' objective."""
    return (LabelsTask if options.objective == "labels" else WordsTask)(options, tokenizer)
