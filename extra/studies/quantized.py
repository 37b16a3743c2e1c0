"""What quantized weights cost: the memory and the loss of a GPT with each kind of `tinygrad_lite/quantize.py`.

    python -m extra.studies.quantized out/goethe                     on the text that was held out when it was trained
    python -m extra.studies.quantized out/goethe --text my.txt       on this text
    python -m extra.studies.quantized smollm2 --dataset imdb --characters 4000

The table goes to stdout. "Bits each" are those of a quantized weight with its share of the scales, "all weights" the
memory of everything in the model; embeddings, norms and the output matrix stay as they are. Losses are measured as by
`python sample.py --score`, and comparable for one model and text. "A token" is the time of one generated token, the
median of `TIMED`, while most of the model's context is still free.
"""

import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from extra.families import GPT as FAMILY
from extra.studies.program import program
from gpt.model import GPT
from gpt.score import score
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.quantize import KINDS, quantize, weight_bytes
from training.cli.console import run_command, say, show
from training.corpora.texts import Corpus, load_corpus, load_files
from training.family import Trained

TIMED = 12  # tokens
MODELS = "a checkpoint, a run's folder, a folder in Hugging Face's layout, or smollm2"


@dataclass
class QuantizedOptions:
    """The options of `python -m extra.studies.quantized`."""

    dataset: str = option("", "text whose held-out part is predicted, by name; empty: the one it was trained on")
    text: list[str] = option([], "files to predict instead: any UTF-8 text", is_path=True)
    characters: int = option(0, "predict only the first N characters; 0: all", unit="characters", low=0)


@program("extra.studies.quantized", QuantizedOptions, "CHECKPOINT", "out/goethe", about_positional=MODELS)
def main(options: QuantizedOptions, name: str) -> None:
    """Memory and loss of a GPT with quantized weights."""
    trained = FAMILY.read(Path(name))
    say(trained.about)
    corpus = text_to_predict(options, trained)
    show(f"{'kind':<12} {'bits each':>10} {'all weights':>12} {'bits per character':>20} {'more':>8} {'a token':>10}")
    first = 0.0
    for kind in (None, *KINDS):
        model = trained.make_model()
        bits, size = 8 * next(iter(trained.weights.values())).itemsize, weight_bytes(model)
        if kind:
            saving = quantize(model, kind)
            bits, size = saving.bits, saving.after
        found = score(model, trained.tokenizer, corpus).bits_per_character
        first = first or found
        row = f"{kind or 'none':<12} {bits:>10.3f} {size / 1e6:>9,.2f} MB {found:>20.4f} {found / first - 1:>z8.2%}"
        show(f"{row} {1e3 * seconds_of_token(model):>7.2f} ms")


def seconds_of_token(model: GPT) -> float:
    """The median time of a step of greedy generation; the first steps, which prepare for others, do not count."""
    log_probs, state = model.start(np.zeros((1, 1), np.int64))
    seconds = []
    for _ in range(2 + TIMED):
        began = time.perf_counter()
        log_probs, state = model.step(log_probs.argmax(-1), state)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:])


def text_to_predict(options: QuantizedOptions, trained: Trained) -> Corpus:
    """The text; nothing of it was learned if it is the held-out part. Raises: as `named_text`."""
    corpus = named_text(options, trained)
    text = corpus.text if options.text else corpus.split()[1]
    return replace(corpus, text=text[: options.characters or None])


def named_text(options: QuantizedOptions, trained: Trained) -> Corpus:
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


if __name__ == "__main__":
    run_command("extra.studies.quantized", main)
