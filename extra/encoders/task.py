"""What an encoder of text learns: hidden words, or labels."""

from __future__ import annotations

from extra.encoders.labels import LabelsTask
from extra.encoders.options import BertOptions
from extra.encoders.words import WordsTask
from text.tokenizers.base import Tokenizer
from training.family import Task


def make_task(options: BertOptions, tokenizer: Tokenizer | None = None) -> Task:
    """The task of the options' objective."""
    return (LabelsTask if options.objective == "labels" else WordsTask)(options, tokenizer)
