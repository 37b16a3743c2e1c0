"""What quantized weights cost: the memory and the loss of a GPT with each kind of `tinygrad_lite/quantize.py`.

    python docs/course/18-adapting/quantized.py out/goethe               on the text that was held out in its training
    python docs/course/18-adapting/quantized.py out/goethe --text my.txt on this text
    python docs/course/18-adapting/quantized.py smollm2 --dataset imdb --characters 4000

The table goes to stdout. "Bits each" are those of a quantized weight with its share of the scales, "all weights" the
memory of everything in the model; embeddings, norms and the output matrix stay as they are. Losses are measured as by
`python sample.py --score`, and comparable for one model and text. "A token" is the time of one generated token, the
median of `TIMED`, while most of the model's context is still free.
"""

import statistics
import sys
import time
from pathlib import Path

import numpy as np

from extra.families import GPT as FAMILY
from extra.studies.program import program
from gpt.model import GPT
from gpt.score import score
from tinygrad_lite.quantize import KINDS, quantize, weight_bytes
from training.cli.console import run_command, say, show

sys.path.insert(0, str(Path(__file__).parents[1]))
from held_out import MODELS, HeldOutOptions, text_to_predict

TIMED = 12  # tokens


@program("docs/course/18-adapting/quantized.py", HeldOutOptions, "CHECKPOINT", "out/goethe", about_positional=MODELS)
def main(options: HeldOutOptions, name: str) -> None:
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


if __name__ == "__main__":
    run_command("quantized", main)
