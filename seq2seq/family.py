"""The translation model, an encoder-decoder Transformer, as a family of models for train.py and sample.py."""

from extra.mixers.mixers import RECURRENT
from extra.mixers.seq2seq import RecurrentSeq2Seq
from seq2seq.config import Seq2SeqConfig
from seq2seq.model import Seq2Seq
from seq2seq.options import Seq2SeqOptions
from seq2seq.sample import speak
from seq2seq.task import TranslationTask
from training.family import Family

FAMILY = Family(
    name="seq2seq",
    title="translation",
    about="Train an encoder-decoder on sentence pairs.",
    examples={
        "python train.py reverse": "a toy task: reverse ten letters, ten seconds",
        "python train.py translate-de-en": "German to English, 25 minutes on two cores",
        "python train.py translate-de-en --pairs my.tsv": "your own pairs: source TAB target in each line",
    },
    preset="translate-de-en",
    config=Seq2SeqConfig,
    model=Seq2Seq,
    options=Seq2SeqOptions,
    task=TranslationTask,
    speak=speak,
    others=dict.fromkeys(RECURRENT, RecurrentSeq2Seq),
)
