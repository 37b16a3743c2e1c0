"""The options of a training run of the GPT."""

from dataclasses import dataclass

from gpt.config import GPTConfig
from text.tokenizers import LEARNED
from training.corpora import texts
from training.corpora.texts import UNNAMED_TEXTS, find
from training.model_config import settings_of
from training.options import TrainOptions, of_data, of_evaluation, of_training


@dataclass
class GPTOptions(TrainOptions):
    """The options of `train.py` for training a GPT."""

    config: GPTConfig = settings_of(GPTConfig)

    dataset: str = of_data("goethe", f"text to learn from, by name: {', '.join(texts.RECIPES)}")
    text: list[str] = of_data([], "files to learn from, any UTF-8 text, instead of dataset", is_path=True)
    tokenizer: str = of_data("char", "what a token is", choices=LEARNED)
    vocab_size: int = of_data(1024, "size of a learned vocabulary: bpe, word", unit="tokens", low=2, high=1_000_000)
    data_order: str = of_data(
        "random",
        "windows at random places of the text (random), or passes over the whole text in random order (epochs)",
        choices=("random", "epochs"),
    )

    batch_size: int = of_training(12, "sequences per micro-step", unit="sequences", low=1, high=1_000_000)
    eval_iters: int = of_evaluation(
        0, "windows of the held-out text to evaluate on, always the same; 0: all", unit="windows", low=0
    )
    sample_tokens: int = of_evaluation(160, "length of the sample at each evaluation; 0: none", unit="tokens", low=0)

    DATASETS = texts.RECIPES
    UNNAMED = dict.fromkeys([None], UNNAMED_TEXTS)
    find_text = staticmethod(find)
    FILES = ("text",)
