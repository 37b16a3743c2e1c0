"""The families of models with all that the shelf adds, and the encoders; train.py and sample.py find them here."""

import extra.tokenizers  # noqa: F401 (whose further kinds of tokens enter the table of tokenizers)
from extra.corpora.pictures import RECIPES as PICTURES
from extra.diffusion.family import DIFFUSION
from extra.encoders.family import BERT, CNN, VIT
from extra.family import ShelfFamily
from extra.gpt.data import MixedTask
from extra.gpt.options import GPTOptions
from extra.gpt.sample import sample as sample_gpt
from extra.gpt.trained import PretrainedGPT
from extra.mixers.mixers import RECURRENT
from extra.mixers.seq2seq import RecurrentSeq2Seq
from extra.pairs.documents import DocumentTask
from extra.pairs.pairs import AnswerTask
from extra.pairs.teachers import TaughtTask
from extra.pixels.pictures import PixelsTask
from extra.rewards.rewards import RewardTask
from extra.seq2seq.config import Seq2SeqConfig
from extra.seq2seq.options import Seq2SeqOptions
from extra.seq2seq.sample import sample as sample_seq2seq
from seq2seq.family import Seq2SeqFamily
from text.tokenizers.base import Tokenizer
from tinygrad_lite.config import ModelConfig
from training.family import Family
from training.task import Task


class ShelfGPT(PretrainedGPT):
    """The GPT that also learns from documents, pairs, images, teachers and rewards."""

    options = GPTOptions
    sample = staticmethod(sample_gpt)

    def make_task(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> Task:
        """The task for the data that the options name: a text, alone or with teachers, or documents, pairs, images."""
        if options.rewards:
            return RewardTask(options, tokenizer)
        if options.documents:
            return DocumentTask(options, tokenizer)
        if options.separator:
            return AnswerTask(options, tokenizer)
        if options.dataset in PICTURES and not options.text:
            return PixelsTask(options, tokenizer)
        return (TaughtTask if options.teachers else MixedTask)(options, tokenizer)


class ShelfSeq2Seq(ShelfFamily, Seq2SeqFamily):
    """The translation model, also with recurrent layers."""

    config = Seq2SeqConfig
    options = Seq2SeqOptions
    sample = staticmethod(sample_seq2seq)

    def model_of(self, config: ModelConfig) -> type:
        """The class of models with these settings."""
        return RecurrentSeq2Seq if config.mixer in RECURRENT else self.model


GPT, SEQ2SEQ = ShelfGPT(), ShelfSeq2Seq()
FAMILIES: dict[str, Family] = {family.name: family for family in (GPT, SEQ2SEQ, BERT, VIT, CNN, DIFFUSION)}
