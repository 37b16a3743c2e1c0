"""The translation model, an encoder-decoder Transformer, as a family of models for train.py and sample.py."""

from typing import ClassVar

from seq2seq.config import Seq2SeqConfig
from seq2seq.model import Seq2Seq
from seq2seq.options import Seq2SeqOptions
from seq2seq.sample import sample
from seq2seq.task import TranslationTask
from training.family import Family


class Seq2SeqFamily(Family):
    """The translation model: it learns from pairs, and translates."""

    name = "seq2seq"
    title = "translation"
    about = "Train an encoder-decoder on sentence pairs."
    examples: ClassVar = {
        "python train.py reverse": "a toy task: reverse ten letters, ten seconds",
        "python train.py translate-de-en": "German to English, 25 minutes on two cores",
        "python train.py translate-de-en --pairs my.tsv": "your own pairs: source TAB target in each line",
    }
    preset = "translate-de-en"
    config = Seq2SeqConfig
    model = Seq2Seq
    options = Seq2SeqOptions
    make_task = TranslationTask
    sample = staticmethod(sample)


FAMILY = Seq2SeqFamily()
