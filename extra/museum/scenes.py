"""How a fault is shown: a tiny model is trained or used with and without it, in seconds.

A scene returns the numbers of a curve, which may be none, and lines of text. What is `trained` stays in memory, and the
first time it is without a fault, so that the fault of a scene that only uses a model is not in the model's training.
"""

import functools
import io
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from extra.families import FAMILIES
from extra.museum.exhibits import DATA
from seq2seq.translate import translate
from text.decoding.sampling import PLAIN, filter_tokens, generate
from text.decoding.stopping import StopText
from text.tokenizers import learn
from text.tokenizers.base import StreamDecoder
from train import evaluate, find_gradients, update
from training.folder import RunFolder
from training.processes.processes import OneProcess

Scene = tuple[list[float], list[str]]
NAMES = "Anna Bert Clara David Emma Fritz Greta Hans".split()


def made_up() -> str:
    """The text for a GPT: sentences in which two names and a thing recur.

    >>> made_up().splitlines()[0]
    'David gives Emma the drum, and Emma thanks David for the drum.'
    """
    rng = np.random.default_rng(1)
    facts = ((*rng.choice(NAMES, 2, replace=False), rng.choice(["apple", "book", "drum"])) for _ in range(5000))
    return "".join(f"{a} gives {b} the {thing}, and {b} thanks {a} for the {thing}.\n" for a, b, thing in facts)


def learned(name: str, watch: str, **settings: Any) -> tuple:
    """Train a tiny model; returns a number for each step, the task, and the model.

    Args:
        name: of its family.
        watch: which number: "training" or "held-out" loss, measured every ten steps, or learning "rate".
    """
    family, comm, seen = FAMILIES[name], OneProcess(), []
    with TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        (text := Path(folder) / "text.txt").write_text(made_up(), encoding="utf-8", newline="\n")
        data = {"text": [str(text)]} if name == "gpt" else {}
        options = family.options.of(**data | DATA[name] | settings)
        setup = family.setup(family, options, RunFolder(folder))
        task = setup.make_task()
    model = setup.make_model(task.tokenizer)
    optimizer = options.make_optimizer(model)
    for step in range(options.max_iters):
        find_gradients(options, task, model, optimizer, comm, step)
        update(options, optimizer, comm, step)
        if step % 10 == 0:
            held_out = evaluate(task, model, comm)
        seen.append({"training": comm.loss, "held-out": held_out, "rate": optimizer.lr}[watch])
    return seen, task, model


trained = functools.cache(learned)


def loss_in_words(task: Any, model: Any) -> str:
    """The model's loss on what is held out."""
    return f"held-out loss: {evaluate(task, model, OneProcess()):.3f}"


def training(family: str = "gpt", watch: str = "training", **settings: Any) -> Scene:
    """A curve of the training."""
    seen, task, model = learned(family, watch, **settings)
    return seen, [loss_in_words(task, model)]


def writing(prompts: list[str], model: dict[str, Any], **settings: Any) -> Scene:
    """What a trained GPT writes after prompts, all in one batch."""
    _, task, gpt = trained("gpt", "training", **model)
    tokens = generate(gpt.eval().step, *gpt.start([*map(task.tokenizer.encode, prompts)]), **settings)
    texts = map(task.tokenizer.decode, np.stack([*tokens], axis=1))
    return [], [*map("|".join, zip(prompts, texts, strict=True)), loss_in_words(task, gpt)]


def translating(sentences: list[str], model: dict[str, Any], retrained: bool = False, **settings: Any) -> Scene:
    """What a trained encoder-decoder makes of sentences, all in one batch."""
    _, task, seq2seq = (learned if retrained else trained)("seq2seq", "training", **model)
    found = translate(seq2seq.eval(), task.tokenizer, sentences, **settings)
    texts = [f"{sentence} -> {best.text}" for sentence, (best, *_) in zip(sentences, found, strict=True)]
    return [], [*texts, loss_in_words(task, seq2seq)]


def choosing(probabilities: list[float], **settings: float) -> Scene:
    """With which probability each token is drawn after the filters."""
    kept = np.exp(filter_tokens(np.log([probabilities]), replace(PLAIN, **settings)))[0]
    shares = zip(probabilities, kept / kept.sum(), strict=True)
    return [], [f"{before:.2f} -> {after:.3f} {'█' * round(20 * after)}" for before, after in shares]


def streaming(text: str, tokenizer: str, vocab_size: int = 256, stops: list[str] | tuple = ()) -> Scene:
    """A text token by token, as it is shown while it is written, and how many tokens it has."""
    coder, stop = learn(tokenizer, text, vocab_size), StopText(stops)
    decoder, tokens = StreamDecoder(coder), coder.encode(text)
    pieces = [*map(decoder.push, tokens), decoder.finish()]
    return [], ["".join(map(stop.push, pieces)) + stop.finish(), f"{len(tokens)} tokens, of {coder.vocab_size} known"]
