"""What scripts of several chapters begin with: the text that a model predicts, and whole numbers in an option."""

from dataclasses import dataclass, replace

import extra.corpora.texts  # noqa: F401 (so that its texts are known)
from extra.studies.program import numbers
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.console import say
from training.corpora.texts import Corpus, load_corpus, load_files
from training.family import Trained

MODELS = "a checkpoint, a run's folder, a folder in Hugging Face's layout, or smollm2"


@dataclass
class HeldOutOptions:
    """Which text a trained model predicts."""

    dataset: str = option("", "text whose held-out part is predicted, by name; empty: the one it was trained on")
    text: list[str] = option([], "files to predict instead: any UTF-8 text", is_path=True)
    characters: int = option(0, "predict only the first N characters; 0: all", unit="characters", low=0)


def text_to_predict(options: HeldOutOptions, trained: Trained) -> Corpus:
    """The text; nothing of it was learned if it is the held-out part. Raises: as `named_text`."""
    corpus = named_text(options, trained)
    text = corpus.text if options.text else corpus.split()[1]
    return replace(corpus, text=text[: options.characters or None])


def named_text(options: HeldOutOptions, trained: Trained) -> Corpus:
    """The whole text that the options name, or that the model was trained on.

    Raises: OptionError if none is named, and the model does not know what it was trained on.
    """
    if options.text:
        return load_files(options.text)
    name = options.dataset or trained.dataset
    if not name:
        raise OptionError("this model does not say what it was trained on: add --text FILE or --dataset NAME")
    corpus = load_corpus(name)
    if name == trained.dataset and corpus.sha256 != trained.corpus_sha256:
        say(f"warning: {name} is not the text that it was trained on, so it may have learned this part")
    return corpus


def whole_numbers(text: str, label: str, example: str) -> list[int]:
    """The numbers from 0 to 999,999,999 in a text such as "1,2,3", in ascending order.

    Raises: OptionError with the label and an example if it is not such a text.
    """
    what = f"whole numbers with commas between them, such as {example}"
    return [*map(int, numbers(text, label, what, lambda one: one.is_integer() and 0 <= one < 1e9))]
