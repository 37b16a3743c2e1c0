"""The options of a training run of BERT."""

from dataclasses import dataclass
from typing import ClassVar

from extra.encoders.config import MASK_SHARE, BertConfig
from extra.options import ShelfOptions
from training.corpora.texts import RECIPES
from training.model_config import settings_of
from training.options import TrainOptions, of_data, of_evaluation, of_training


@dataclass
class BertOptions(ShelfOptions, TrainOptions):
    """The options of `train.py` for training a BERT."""

    config: BertConfig = settings_of(BertConfig)

    dataset: str = of_data("goethe", "text whose hidden words are predicted, by name: " + ", ".join(RECIPES))
    text: list[str] = of_data([], "files to learn from, any UTF-8 text, instead of dataset", is_path=True)
    table: str = of_data("", "CSV file of texts, or pairs of texts, and labels, for --objective labels", is_path=True)
    tokenizer: str = of_data("wordpiece", "what a token is", choices=("wordpiece", "bpe"))
    vocab_size: int = of_data(4096, "size of the vocabulary", unit="tokens", low=2, high=1_000_000)
    lowercase: bool = of_data(False, "read letters without case and accents")

    batch_size: int = of_training(32, "sequences per micro-step", unit="sequences", low=1, high=1_000_000)
    mask_share: float = of_training(MASK_SHARE, "share of the tokens to predict", above=0.0, below=1.0)
    weight_decay: float = of_training(0.01, "weight decay of the matrices", low=0.0)
    eval_iters: int = of_evaluation(
        0, "sequences of the held-out text to evaluate on, always the same; 0: all", unit="sequences", low=0
    )

    FILES: ClassVar[tuple[str, ...]] = ("text", "table")  # options that are paths, which no checkpoint holds
