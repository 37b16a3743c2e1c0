"""How far back can a mixer look? Keys with values, a distance, and one of the keys again: what was its value?

    python docs/course/21-beyond/recall.py                        attention, a window, LSTM, Hyena, Mamba-2
    python docs/course/21-beyond/recall.py --mixers lstm,mamba2 --distances 8,512 --steps 2000
    python docs/course/21-beyond/recall.py --csv recall.csv

A text has `pairs` pairs of a key and a value, in random order, then noise, and then one of the keys, d positions after
its pair: the value comes next. Attention can compare this key with all others. A recurrent layer must have kept all
pairs, since it cannot know which one will be asked for; a window has lost them if they are further away than it reaches
through all layers. Each mixer learns from random texts, with distances up to the longest, and is tested on others.

    a 4  c 1  b 7  .  .  .  c   ->  1

The models have two layers and are otherwise small, and all have the same number of steps and the same rate: the table
says what a layer can do easily, not what it could do with more.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from extra.gpt.config import GPTConfig
from extra.plots.figure import check_folder
from extra.studies.program import chosen, numbers, program, write_lines
from gpt.model import GPT
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.config import option
from tinygrad_lite.functional.cross_entropy import cross_entropy
from tinygrad_lite.optim import AdamW, cosine
from tinygrad_lite.random import keyed_rng, random_key
from tinygrad_lite.tensor import Tensor
from training.cli.console import run_command, say

SYMBOLS = 16  # keys, and as many values; one more token is noise
KINDS = {
    "attention": {"positions": "rotary"},
    "window": {"positions": "rotary", "window": 16},
    **{name: {"mixer": name, "positions": "none"} for name in ("rnn", "lstm", "hyena", "mamba2")},
}


@dataclass
class RecallOptions:
    """The options of `python docs/course/21-beyond/recall.py`."""

    mixers: str = option("attention,window,rnn,lstm,hyena,mamba2", f"of {', '.join(KINDS)}")
    distances: str = option("8,16,32,64,128", "how far the pair is before the question", unit="tokens")
    pairs: int = option(4, "pairs of a key and a value", low=1, high=SYMBOLS)
    steps: int = option(1000, "updates", low=1)
    batch_size: int = option(32, "texts of an update", low=1)
    n_embd: int = option(64, "width of the models", low=8)
    learning_rate: float = option(3e-3, "of AdamW; it falls as a cosine", above=0.0)
    seed: int = option(1, "of weights and texts", low=0)
    csv: str = option("", "write the table into this file, too", is_path=True)


@program("docs/course/21-beyond/recall.py", RecallOptions)
def main(options: RecallOptions) -> None:
    """Accuracy against distance for attention and its alternatives."""
    least = 2 * options.pairs
    what = f"whole numbers of at least {least}, twice the pairs, such as 8,32,128"
    distances = [*map(int, numbers(options.distances, "--distances", what, lambda n: n >= least and n.is_integer()))]
    check_folder(options.csv, "--csv")
    rows = [["mixer", "parameters", "seconds", *map(str, distances)]]
    print(f"{'accuracy behind':<12} {'parameters':>10} {'seconds':>8}" + "".join(f"{d:>7}" for d in distances))
    for name in chosen(options.mixers, list(KINDS), "mixers"):
        model, seconds = trained(name, options, distances)
        right = [accuracy(model, options, d) for d in distances]
        rows.append([name, str(model.num_parameters()), f"{seconds:.1f}", *(f"{share:.3f}" for share in right)])
        shares = "".join(f"{share:>7.1%}" for share in right)
        print(f"{name:<15} {model.num_parameters():>10,} {seconds:>8.1f}{shares}", flush=True)
    if options.csv:
        write_lines(Path(options.csv), [",".join(row) for row in rows], "--csv ")
        say(f"wrote {options.csv}")


def texts(rng: np.random.Generator, count: int, pairs: int, distance: int) -> tuple[np.ndarray, np.ndarray]:
    """Texts (B, T), each of which ends with a key, and the values (B,) that follow.

    The key asked for is `distance` positions before the question, with its value right after it.
    """
    keys = np.argsort(rng.random((count, SYMBOLS)), axis=1)[:, :pairs]
    values = SYMBOLS + rng.integers(0, SYMBOLS, (count, pairs))
    asked = rng.integers(0, pairs, count)
    rows = np.arange(count)
    length = distance + 2 * pairs - 1  # so that even the first pair can be asked for
    ids = np.full((count, length), 2 * SYMBOLS)
    starts = length - 1 - distance - 2 * asked  # of the pairs
    for n in range(pairs):
        ids[rows, starts + 2 * n], ids[rows, starts + 2 * n + 1] = keys[:, n], values[:, n]
    ids[:, -1] = keys[rows, asked]
    return ids, values[rows, asked]


def trained(name: str, options: RecallOptions, distances: list[int]) -> tuple[GPT, float]:
    """A small GPT with this mixer that has learned to answer, and the seconds that it took."""
    block = distances[-1] + 2 * options.pairs
    sizes = {"vocab_size": 2 * SYMBOLS + 1, "block_size": block, "n_layer": 2, "n_head": 4, "n_embd": options.n_embd}
    with random_key(options.seed):
        model = GPT(GPTConfig(**sizes, norm="rmsnorm", **KINDS[name]))
    optimizer, began = AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0), time.perf_counter()
    for step in range(options.steps):
        optimizer.lr = cosine(step, options.learning_rate, min(50, options.steps), options.steps, 0.0)
        rng = keyed_rng(options.seed, "recall", step)
        ids, answers = texts(rng, options.batch_size, options.pairs, distances[step % len(distances)])
        optimizer.zero_grad()
        cross_entropy(model(Tensor(ids))[:, -1], Tensor(answers)).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
    return model.eval(), time.perf_counter() - began


def accuracy(model: GPT, options: RecallOptions, distance: int, count: int = 500) -> float:
    """The share of right answers to texts that were not learned from."""
    ids, answers = texts(keyed_rng(options.seed, "recall test", distance), count, options.pairs, distance)
    with no_grad():
        return float((model(Tensor(ids))[:, -1].numpy().argmax(-1) == answers).mean())


if __name__ == "__main__":
    run_command("recall", main)
