"""The options of a training run of the translation model with all that the shelf adds."""

from dataclasses import dataclass

from extra.options import ShelfOptions
from seq2seq import options as core


@dataclass
class Seq2SeqOptions(ShelfOptions, core.Seq2SeqOptions):
    """The options of `train.py` for a translation model."""
