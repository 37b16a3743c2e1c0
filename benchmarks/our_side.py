"""This project's side of every row, run as by its scripts.

A task is a function that prepares something, untimed, and returns a function that does it: `repeat(number)` does the
task once and returns a number in the row's unit, and for a training step its loss.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes import SHAPES, MadeUpTask, Shape
from gpt.fast import step as fast_step  # noqa: F401 (which register themselves as fast versions of a GPT)
from gpt.fast import step_cuda as fast_step_cuda  # noqa: F401 (which register themselves as fast versions of a GPT)
from gpt.model import GPT
from seq2seq.toys import german_number
from text.decoding.sample_options import SampleOptions
from text.decoding.sampling import generate
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Module
from tinygrad_lite.random import keyed_rng, random_key
from train import only_updates
from training.cli.console import say
from training.corpora.texts import from_cache
from training.folder import tune_memory
from training.options import TrainOptions
from training.processes.processes import OneProcess
from training.processes.workers import start_processes
from training.setup import RunSetup

ROOT = Path(__file__).parent.parent
MEGABYTE = 1_000_000  # bytes
MERGES = 1000
BYTES = 256  # tokens before the first merge
MALLOC = {True: "malloc keeps freed memory (mallopt)", False: "the system's malloc"}

Repeat = Callable[[int], dict[str, float]]  # number -> {"value": ..., maybe "loss": ...}


def prepare(work: str, shape: str, workers: int, until_end: ExitStack) -> tuple[Repeat, list[str]]:
    """The function that does this task as the scripts do, and facts for the reader.

    Args:
        workers: processes that share a training step; 0: as many as train.py starts.
        until_end: collects what must be cleaned up at the end.
    """
    kept = tune_memory()
    np.seterr(all="ignore")
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "not set, as many as cores")
    facts = [MALLOC[kept], f"OPENBLAS_NUM_THREADS {threads}"]
    if work == "import":
        return run_import(), facts
    if work in ("learn", "encode"):
        text, source = german_text()
        return (learn if work == "learn" else encode)(text), [*facts, f"text: {source}"]
    if work == "first-character":
        return first_character(until_end), facts
    if work == "write-parts":
        return compare_writing(SHAPES[shape], SHAPES[f"{shape}-gpt2"]), facts
    if work.startswith("write"):
        return write(SHAPES[shape]), facts
    update, comm = updates_of(*parts_of(SHAPES[shape], workers), until_end)
    return timed(update), [*facts, f"{shape} in {comm.size} process" + ("es" if comm.size > 1 else "")]


def make_model(shape: Shape) -> Any:
    """The model with its first, random weights, which are the same in every process."""
    with random_key(shape.options.seed):
        return shape.model(shape.config)


def parts_of(shape: Shape, workers: int) -> tuple[TrainOptions, Module, MadeUpTask]:
    """What `updates_of` needs to train a shape in so many processes; 0: as many as train.py starts."""
    return replace(shape.options, workers=workers), make_model(shape), MadeUpTask(shape)


def updates_of(
    options: TrainOptions, model: Module, task: Any, until_end: ExitStack
) -> tuple[Callable[[int], float], OneProcess]:
    """A function that makes update `step` by the loop of train.py and returns the loss before it; the communicator.

    `until_end` ends the other processes, which run the same loop.
    """
    options = replace(options, max_iters=sys.maxsize, decay_lr=False)
    options.workers = RunSetup(None, options, None).number_of_workers()
    optimizer = options.make_optimizer(model)
    comm = until_end.enter_context(start_processes(only_updates, options, task, model, optimizer))

    def update(step: int) -> float:
        only_updates(replace(options, max_iters=step + 1), task, model, optimizer, comm)
        return comm.numbers().loss

    return update, comm


def per_second(amount: float) -> Callable[[float], float]:
    """A function that makes a speed of seconds."""
    return lambda seconds: amount / seconds


def timed(step: Callable[[int], Any], value: Callable[[float], float] = lambda seconds: 1e3 * seconds) -> Repeat:
    """Does a task once, and makes a number of the seconds that it takes: milliseconds by default.

    The loss is what the step returns, if that is a number.
    """

    def repeat(number: int) -> dict[str, float]:
        began = time.perf_counter()
        result = step(number)
        found = {"value": value(time.perf_counter() - began)}
        return found | ({"loss": result} if isinstance(result, float) else {})

    return repeat


def write(shape: Shape) -> Repeat:
    """Greedy generation until the context is full, in tokens per second."""
    model, count = make_model(shape).eval(), shape.options.config.block_size - 1  # after a prompt of one token
    return timed(lambda number: greedy(model, [number % shape.vocab_size], count), per_second(count))


def compare_writing(shape: Shape, other: Shape) -> Repeat:
    """The time that one shape takes for a token of greedy generation, divided by that of another, in turns."""
    speed_of, other_speed_of = write(shape), write(other)

    def repeat(number: int) -> dict[str, float]:
        if number % 2:
            own, reference = speed_of(number)["value"], other_speed_of(number)["value"]
        else:  # in the opposite order
            reference, own = other_speed_of(number)["value"], speed_of(number)["value"]
        return {"value": reference / own}

    return repeat


def greedy(model: GPT, first: Sequence[int], count: int) -> np.ndarray:
    """The `count` most probable tokens after the first one of each text, chosen greedily: (texts, count)."""
    log_probs, state = model.start(np.array(first)[:, None], on_host=False)
    return np.stack([*generate(model.step, log_probs, state, max_new_tokens=count, temperature=0.0)], axis=1)


# --- starting -------------------------------------------------------------------------------------------------


def run_import() -> Repeat:
    """A fresh Python imports NumPy and then this project: the seconds of the second import."""
    program = "import time, numpy; t = time.perf_counter(); import tinygrad_lite; print(time.perf_counter() - t)"

    def repeat(number: int) -> dict[str, float]:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, encoding="ascii")
        return {"value": float(done.stdout)}

    return repeat


def first_character(until_end: ExitStack) -> Repeat:
    """`python sample.py` from its start to the first generated character, in seconds; the model is untrained."""
    folder = Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="tinygrad_lite-")))
    alphabet = "\n" + "".join(chr(ord("!") + i) for i in range(SHAPES["small"].vocab_size - 2))  # and the unknown one
    (folder / "text.txt").write_text(alphabet * 20, encoding="utf-8", newline="\n")
    untrained = "goethe-char --text text.txt --max_iters 0 --sample_tokens 0 --workers 1 --out_dir run".split()
    train = [sys.executable, str(ROOT / "train.py"), *untrained]
    subprocess.run(train, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    prompt = len(SampleOptions.start.encode("utf-8"))  # it is written first

    def repeat(number: int) -> dict[str, float]:
        began = time.perf_counter()
        command = [sys.executable, str(ROOT / "sample.py"), str(folder / "run")]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stdin=nowhere, stdout=pipe, stderr=nowhere, bufsize=0) as process:
            for _ in range(prompt + 1):
                if not process.stdout.read(1):
                    raise UserError("`python sample.py` wrote nothing for an untrained model: run it to see why")
            seconds = time.perf_counter() - began
            process.kill()
        return {"value": seconds}

    return repeat


# --- tokenizing -----------------------------------------------------------------------------------------------


def german_text() -> tuple[str, str]:
    """A megabyte of German and its source: Goethe, repeated, if it is in the cache, otherwise numbers in words."""
    corpus = from_cache("goethe", say)
    if corpus:
        repeated = corpus.text * (MEGABYTE // len(corpus.text.encode("utf-8")) + 1)
        return cut(repeated), "the corpus goethe, repeated to 1 MB"
    numbers = keyed_rng(1, "benchmark").integers(0, 1_000_000, 40_000)
    return cut(". ".join(map(german_number, numbers.tolist()))), "1 MB of random numbers in German words"


def cut(text: str) -> str:
    """The first megabyte of a text, in UTF-8."""
    return text.encode("utf-8")[:MEGABYTE].decode("utf-8", "ignore")


def learn(text: str) -> Repeat:
    """Learning a vocabulary, in seconds."""
    return timed(lambda number: BPETokenizer.train(text, BYTES + MERGES), float)


def encode(text: str) -> Repeat:
    """Encoding with that vocabulary, in megabytes per second; each time with an empty cache."""
    learned = BPETokenizer.train(text, BYTES + MERGES).to_json()

    def repeat(number: int) -> dict[str, float]:
        tokenizer = BPETokenizer.from_json(learned)
        return timed(lambda _: tokenizer.encode(text), per_second(len(text.encode("utf-8")) / MEGABYTE))(number)

    return repeat
