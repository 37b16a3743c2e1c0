"""The options of a training run of the translation model with all that the shelf adds."""

from dataclasses import dataclass

from extra.options import ShelfOptions
from extra.seq2seq.config import Seq2SeqConfig
from seq2seq import options as core
from training.model_config import settings_of


@dataclass
class Seq2SeqOptions(ShelfOptions, core.Seq2SeqOptions):
    """The options of `train.py` for a translation model."""

    config: Seq2SeqConfig = settings_of(Seq2SeqConfig)

    COUNTED = (2, "source and target token")
