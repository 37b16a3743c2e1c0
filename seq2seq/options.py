"""The options of a training run of the translation model."""

from collections import ChainMap
from dataclasses import dataclass
from typing import ClassVar

from seq2seq.config import Seq2SeqConfig
from seq2seq.toys import TOYS
from text.tokenizers import LEARNED
from tinygrad_lite.errors import OptionError
from training.corpora.pairs import AUF_DEUTSCH, RECIPES, find
from training.model_config import settings_of
from training.options import TrainOptions, of_data, of_evaluation, of_training


@dataclass
class Seq2SeqOptions(TrainOptions):
    """The options of `train.py` for a translation model."""

    config: Seq2SeqConfig = settings_of(Seq2SeqConfig)

    dataset: str = of_data("everyday", "name of the sentence pairs to train on", choices=ChainMap(TOYS, RECIPES))
    pairs: str = of_data("", "file to use instead: source TAB target in each line", is_path=True)
    src: str = of_data("", "or a file with a source sentence in each line, ...", is_path=True)
    tgt: str = of_data("", "... and one with their translations, line by line", is_path=True)
    val_src: str = of_data("", "held-out source sentences; none: some pairs are held out", is_path=True)
    val_tgt: str = of_data("", "their translations", is_path=True)
    swap: bool = of_data(False, "the opposite direction: English to German, target to source")
    held_out: int = of_data(1000, "pairs to hold out, at most a tenth of all", unit="pairs", low=1)
    train_pairs: int = of_data(0, "learn from this many of the pairs, drawn by --seed; 0: all", unit="pairs", low=0)
    toy_size: int = of_data(20_000, "pairs of a toy task", unit="pairs", low=20, high=10_000_000)
    tokenizer: str = of_data("bpe", "what a token is, in both languages", choices=[*LEARNED])
    vocab_size: int = of_data(6000, "size of a learned vocabulary: bpe, word", unit="tokens", low=2, high=1_000_000)

    batch_tokens: int = of_training(2500, "size of a micro-step, with padding", unit="tokens", low=8)
    beta2: float = of_training(0.98, "decay of the squared gradient's running mean", low=0.0, below=1.0)
    weight_decay: float = of_training(0.01, "weight decay of the matrices", low=0.0)
    eval_pairs: int = of_evaluation(500, "pairs to translate at each evaluation", unit="pairs", low=0)
    translations: int = of_evaluation(3, "translations to show at each evaluation", low=0)

    FACTORS = (("batch_tokens", "tokens of source and target"),)
    UNNAMED = dict.fromkeys(("translate-de-en", "translate-en-de"), ("everyday", AUF_DEUTSCH))
    find_text = staticmethod(find)
    FILES = ("pairs", "src", "tgt", "val_src", "val_tgt")
    READERS: ClassVar = {
        "pairs": {False: ("dataset", "toy_size")},
        "src": {False: ("dataset", "toy_size")},
        "dataset": dict.fromkeys(TOYS, ("toy_size",)),
        "val_src": {False: ("held_out",)},
    }

    def check(self) -> None:
        """Check that the options can be used together, before any text is fetched.

        Raises: OptionError if not.
        """
        super().check()
        for there, missing in (("src", "tgt"), ("tgt", "src"), ("val_src", "val_tgt"), ("val_tgt", "val_src")):
            if getattr(self, there) and not getattr(self, missing):
                raise OptionError(f"--{there} needs --{missing}: sentences and translations are in two files")
        if self.pairs and self.src:
            raise OptionError("--pairs and --src cannot be combined: give one file of pairs, or two files of sentences")

    def max_workers(self) -> int:
        """The maximum number of processes: each should have some pairs of most batches."""
        return max(1, self.batch_tokens // 100)
