"""Ways to find a fault that says nothing, and which exhibits of the museum each catches: the table of chapter 23.

    python docs/course/23-faults/methods.py       the table: a minute or two
    python docs/course/23-faults/methods.py 6     what each method sees with exhibit 6 planted, or with A to E

A method yields findings: a sentence, and whether it is what it must be. It catches a fault if one of them is not, or
if the program ends with an error. All models are tiny, and are made before anything is planted.
"""

import copy
import functools
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from riddles import RIDDLES
from threadpoolctl import threadpool_limits

from extra.museum.exhibits import EXHIBITS
from seq2seq.translate import translate
from text.decoding.sampling import Sampling, generate
from text.decoding.stopping import StopText
from text.tokenizers import learn
from text.tokenizers.base import StreamDecoder
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.functional.registry import set_composed
from tinygrad_lite.random import random_key
from training.cli.console import run_command
from training.processes.processes import OneProcess

sys.path.insert(0, str(Path(__file__).parents[3]))  # where train.py is, which is in no package
from extra.museum import scenes
from train import evaluate, find_gradients, update

Finding = tuple[str, bool]
GPT = {"batch_size": 4, "block_size": 32, "learning_rate": 0.01, "warmup_iters": 20}
SEQ2SEQ = {"batch_tokens": 400, "n_embd": 32, "learning_rate": 0.01, "warmup_iters": 20}
SIZES = {"gpt": GPT, "seq2seq": SEQ2SEQ}
PROMPTS = {"gpt": ["Anna gives Bert the", "Emma gives", "Hans"], "seq2seq": ["neunundneunzig", "zwanzig", "elf"]}
TEXT, STOP = "süß 😀, na also", "na"


# --- what the methods need ------------------------------------------------------------------------------------------


@functools.cache
def _made(family: str, **settings: Any) -> tuple:
    _, task, model = scenes.learned(family, "training", max_iters=0, **settings)
    return task, model


def made(family: str, **settings: Any) -> tuple:
    """The data of a small model of the museum, and the model before its first update."""
    task, model = _made(family, **settings)
    return task, copy.deepcopy(model)


def used(family: str, **settings: Any) -> tuple:
    """The same in evaluation mode, with larger weights, so that without training every part has an effect."""
    task, model = made(family, **settings)
    for parameter in model.parameters():
        parameter.data *= 3
    return task, model.eval()


def updated(task: Any, model: Any, steps: int, batches: Callable | None = None) -> list[float]:
    """The losses of some updates by the loop of train.py, on the task's batches or on others."""
    options, data = replace(task.options, max_iters=steps), SimpleNamespace(batches=batches or task.batches)
    optimizer, comm, losses = options.make_optimizer(model), OneProcess(), []
    for step in range(steps):
        find_gradients(options, data, model, optimizer, comm, step)
        update(options, optimizer, comm, step)
        losses.append(comm.loss)
    return losses


@functools.cache
def by_heart(family: str) -> tuple:
    """The data, a model after 120 updates on the same batch, this batch, and the losses."""
    task, model = made(family, **SIZES[family])
    [(batch, share)] = task.batches(0)
    losses = updated(task, model, 120, lambda *_: [(batch, share)])
    return task, model.eval(), batch, losses


def predicted(model: Any, rows: list, steps: int, use_cache: bool = True, order: int = 1) -> np.ndarray:
    """The log-probabilities (B, V) after rows and a few more tokens; with order -1, every step reverses the rows."""
    log_probs, state = model.start(rows, use_cache=use_cache)
    for token in range(5, 5 + steps):
        log_probs, state = model.step(np.full(len(rows), token), state.select(np.arange(len(rows))[::order]))
    return log_probs


def distance(one: Any, other: Any) -> float:
    """The largest difference of two arrays, or numbers."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).max())


# --- six methods ----------------------------------------------------------------------------------------------------


def first_loss() -> Iterator[Finding]:
    """A model that knows nothing has a loss of ln V."""
    for family, settings in SIZES.items():
        task, model = made(family, **settings, gradient_accumulation_steps=2)
        [loss], expected = updated(task, model, 1), math.log(task.tokenizer.vocab_size)
        yield f"{family}: loss {loss:.2f} at step 0, ln V = {expected:.2f}", abs(loss - expected) < 0.3


def one_batch() -> Iterator[Finding]:
    """A single batch can be learned by heart."""
    for family in SIZES:
        *_, losses = by_heart(family)
        yield f"{family}: loss {losses[-1]:.3f} after {len(losses)} updates on one batch", losses[-1] < 0.2


def future() -> Iterator[Finding]:
    """A later token changes no earlier prediction."""
    for family in SIZES:
        task, model = used(family)
        size = task.tokenizer.vocab_size
        ids = np.arange(24)[None] * 7 % size
        source = (Tensor(ids),) if family == "seq2seq" else ()
        for t in (1, 12, 23):
            changed = np.where(np.arange(24) == t, (ids + 1) % size, ids)
            with no_grad():
                before, after = (model(*source, Tensor(tokens)).numpy()[:, :t] for tokens in (ids, changed))
            moved = distance(before, after)
            yield f"{family}: another token {t} moves earlier logits by {moved:.0e}", moved < 1e-3


def alone() -> Iterator[Finding]:
    """An example gets in a batch what it gets alone."""
    for family, size in {"gpt": "batch_size", "seq2seq": "batch_tokens"}.items():
        task, model = used(family, **SIZES[family])
        rows = [task.tokenizer.encode(text) for text in PROMPTS[family]]
        for steps in (0, 2):
            moved = distance(predicted(model, rows, steps), [predicted(model, [row], steps)[0] for row in rows])
            yield f"{family}: a batch moves prediction {steps} by {moved:.0e}", moved < 1e-3
        other, _ = made(family, **SIZES[family] | {size: 8})
        losses = [evaluate(data, model, OneProcess()) for data in (task, other)]
        said = "held-out loss in large batches {:.4f}, in small ones {:.4f}".format(*losses)
        yield f"{family}: {said}", distance(*losses) < 1e-3


def kept() -> Iterator[Finding]:
    """What is kept between steps, such as a cache, changes nothing."""
    for positions in ("rotary", "learned"):
        for family in SIZES:
            task, model = used(family, positions=positions)
            for count in (1, 3):
                rows = [task.tokenizer.encode(text) for text in PROMPTS[family][:count]]
                moved = distance(*(predicted(model, rows, 3, use_cache, order=-1) for use_cache in (True, False)))
                yield f"{family}, {positions}: a cache moves {count} rows by {moved:.0e}", moved < 1e-3
    coder = learn("byte", TEXT, 256)
    decoder, stop, tokens = StreamDecoder(coder), StopText([STOP]), coder.encode(TEXT)
    streamed = "".join(map(decoder.push, tokens)) + decoder.finish()
    yield f"{TEXT} token by token: {streamed}", streamed == TEXT
    shown = "".join(map(stop.push, TEXT)) + stop.finish()
    yield f"{TEXT} up to {STOP}: {shown}", shown == TEXT.partition(STOP)[0]


def twice() -> Iterator[Finding]:
    """The same seed gives the same, another one does not, and an evaluation needs none."""
    task, model = made("gpt", **GPT, dropout=0.2)
    batch, _ = next(task.batches(0))
    for when in ("before", "after"):
        losses = []
        for seed in (1, 1, 2):
            with random_key(seed):
                losses.append(model.loss(batch).item())
        said = "losses with the seeds 1, 1, 2, {} an evaluation: {:.4f}, {:.4f}, {:.4f}".format(when, *losses)
        yield said, losses[0] == losses[1] != losses[2]
        one, other = (evaluate(task, model, OneProcess()) for _ in range(2))
        yield f"evaluated twice: {one:.4f}, {other:.4f}", one == other
    (_, model), texts = used("gpt"), []
    for seed in (1, 1, 2):
        tokens = generate(model.step, *model.start([[1]]), max_new_tokens=20, sampling=Sampling(seed=seed))
        texts.append(task.tokenizer.decode(np.concatenate([*tokens])))
    yield f"written with the seeds 1, 1, 2: {texts}", texts[0] == texts[1] != texts[2]


# --- and three more -------------------------------------------------------------------------------------------------


def recital() -> Iterator[Finding]:
    """What is known by heart can be written."""
    _, model, (ids, _), _ = by_heart("gpt")
    rows = ids.numpy()
    written = [*generate(model.step, *model.start(rows[:, :12]), max_new_tokens=16, temperature=0)]
    share = np.mean(np.stack(written, axis=1) == rows[:, 12:28])
    yield f"gpt: {share:.0%} of what it writes is in its batch", share > 0.9
    task, model, batch, _ = by_heart("seq2seq")
    special = [*task.tokenizer.specials.values()]
    sources, targets = ([task.tokenizer.decode(row[~np.isin(row, special)]) for row in side.numpy()] for side in batch)
    written = [best.text for best, *_ in translate(model, task.tokenizer, sources)]
    share = np.mean(np.array(written) == np.array(targets))
    yield f"seq2seq: {share:.0%} of what it translates is in its batch", share > 0.9


def slope(micro_batches: int = 2) -> Iterator[Finding]:
    """The gradient of an update is the slope of its loss (chapter 3)."""
    for family, settings in SIZES.items():
        parts = {"gradient_accumulation_steps": micro_batches, "grad_clip": 0.0, "dtype": "float64"}
        task, model = made(family, **settings, **parts, activation="gelu")  # which has no kink
        optimizer, comm = task.options.make_optimizer(model), OneProcess()
        for step in (0, 1):
            find_gradients(task.options, task, model, optimizer, comm, step)
        missed = ", ".join(optimizer.unreached())
        yield f"{family}: parameters without a gradient: {missed or 'none'}", not missed
        rng, computed, losses = np.random.default_rng(0), 0.0, []
        directions = [(p, rng.standard_normal(p.shape)) for p in model.parameters()]
        for p, direction in directions:
            computed += (p.grad.numpy() * direction).sum() if p.grad is not None else 0.0
        for move in (1e-6, -2e-6):  # to the one side, then to the other
            for p, direction in directions:
                p.data += move * direction
            losses.append(sum(model.loss(batch).item() * share for batch, share in task.batches(1)))
        measured = (losses[0] - losses[1]) / 2e-6
        yield f"{family}: gradient {computed:.5f}, slope {measured:.5f}", abs(computed / measured - 1) < 1e-4


def second() -> Iterator[Finding]:
    """The fused versions of all operations train as the reference versions do (chapter 3)."""
    for family, settings in SIZES.items():
        losses = []
        for is_composed in (False, True):
            set_composed(is_composed)
            task, model = made(family, **settings, optimizer="adamw")
            losses.append(updated(task, model, 3))
        moved = distance(*losses)
        yield f"{family}: the reference versions move three losses by {moved:.0e}", moved < 1e-3


METHODS = {f.__name__: f for f in (first_loss, one_batch, future, alone, kept, twice, recital, slope, second)}


# --- the table ------------------------------------------------------------------------------------------------------


def findings(fault: AbstractContextManager) -> dict[str, list[Finding]]:
    """What each method finds while a fault is planted. An error is a finding, too."""
    found = {}
    by_heart.cache_clear()
    with fault, threadpool_limits(1), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in METHODS.items():
            try:
                found[name] = [*method()]
            except Exception as error:
                found[name] = [(f"{type(error).__name__}: {error}", False)]
            set_composed(False)
    by_heart.cache_clear()
    return found


def catchers(fault: AbstractContextManager) -> list[str]:
    """The methods that catch a fault."""
    return [name for name, found in findings(fault).items() if not all(holds for _, holds in found)]


def table() -> Iterator[str]:
    """Which method catches which exhibit, as Markdown; then the exhibits that none catches, with tests that find them.

    Raises: UserError if a method finds something where nothing is planted.
    """
    if wrong := catchers(nullcontext()):
        raise UserError(f"nothing is planted, and yet something is found by {', '.join(wrong)}")
    yield f"| | exhibit | {' | '.join(f'`{name}`' for name in METHODS)} |"
    yield f"|---|---|{':-:|' * len(METHODS)}"
    count, left = Counter(), []
    for number, exhibit in enumerate(EXHIBITS, start=1):
        caught = catchers(exhibit.planted())
        count.update(caught)
        if caught:
            yield f"| {number} | {exhibit.title} | {' | '.join('●' if name in caught else ' ' for name in METHODS)} |"
        else:
            path, _, test = exhibit.tests[0].partition("::")
            left.append(f"| {number} | {exhibit.title} | [`{test}`]({'../' * 3}{path}) |")
    yield f"| | caught, of {len(EXHIBITS)} | {' | '.join(str(count[name]) for name in METHODS)} |"
    yield from ("", "| | caught by none of these | a test that finds it |", "|---|---|---|", *left)


def main(argv: list[str]) -> int:
    """Print the table, or what each method finds with one fault, exhibit or riddle."""
    faults = {str(number): exhibit for number, exhibit in enumerate(EXHIBITS, start=1)} | RIDDLES
    if not argv:
        for line in table():
            print(line, flush=True)
    elif argv[0] not in faults:
        raise OptionError(f"{argv[0]} is neither an exhibit, 1 to {len(EXHIBITS)}, nor a riddle, {', '.join(RIDDLES)}")
    else:
        findings(nullcontext())  # so that everything is made before anything is planted
        for name, found in findings(faults[argv[0]].planted()).items():
            print(f"{name}: {METHODS[name].__doc__}")
            print("\n".join(f"  {' ' if holds else '!'} {sentence}" for sentence, holds in found))
    return 0


if __name__ == "__main__":
    run_command(Path(sys.argv[0]).name, main, __doc__)
