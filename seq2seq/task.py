"""The training task of the translation model: learn from pairs, and translate held-out ones at evaluations."""

from collections.abc import Sequence

from seq2seq.corpus import load_pairs
from seq2seq.data import BOS, EOS, SPECIALS, TranslationData
from seq2seq.model import Seq2Seq
from seq2seq.options import Seq2SeqOptions
from seq2seq.translate import translate
from text.tokenizers.base import Tokenizer
from training.pair_data import Pair, encode_pairs
from training.pair_task import PairTask


class TranslationTask(PairTask):
    """Training pairs, held-out pairs, and translations of the held-out sentences."""

    data_class = TranslationData

    def __init__(self, options: Seq2SeqOptions, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(options, load_pairs(options), tokenizer, SPECIALS, options.translations)

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Token ids; a target is between <bos> and <eos>."""
        return encode_pairs(self.tokenizer, pairs, BOS, EOS)

    def positions(self, pair: Pair) -> int:
        """The length of the longer side: encoder and decoder have a context each."""
        return max(map(len, pair))

    def translate(self, model: Seq2Seq, sources: list[str]) -> list[str]:
        """The model's greedy translation of each sentence."""
        return [hypotheses[0].text for hypotheses in translate(model, self.tokenizer, sources)]
