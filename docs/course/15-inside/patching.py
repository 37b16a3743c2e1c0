"""Activation patching: where in a model is the choice between two answers made?

    python docs/course/15-inside/patching.py                the model of induction.py, trained first
    python docs/course/15-inside/patching.py out/goethe --a "wenn ich es nicht" --b "wenn er es nicht"

The model reads prompt B, but at one layer and one position its stream is replaced by the one from a run on prompt A.
How far does the next token move from B's answer to A's? With d = logit of A's answer - logit of B's,

    effect = (d patched - d of B) / (d of A - d of B)

0 is B's answer, 1 is A's. This is measured for every layer and position: a table, and a map as patching.svg.

References: Vig et al. 2020 (arXiv:2004.12265); Meng et al. 2022 (arXiv:2202.05262).
"""

import functools
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from induction import LENGTH, AttentionOnly, train
from svg import COLOURS, TINT, Page, check_plot
from threadpoolctl import threadpool_limits

from extra.gpt.trained import load_trained
from extra.inside import pieces
from gpt.model import GPT
from tinygrad_lite import Tensor, manual_seed, no_grad
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from tinygrad_lite.nn import recorded
from training.cli.command_line import read_command
from training.cli.console import run_command, say

ALPHABET = string.ascii_letters + string.digits + "+-"  # the 64 tokens of induction.py
Model = GPT | AttentionOnly


@dataclass
class PatchingOptions:
    """The options of the experiment."""

    a: str = option("xcmyhkzwxc", "prompt A, whose stream is copied")
    b: str = option("xhmyckzwxc", "prompt B, into which it is copied; as many tokens as A")
    answer_a: str = option("", "a text whose first token is A's answer; empty: the most probable token")
    answer_b: str = option("", "the same for B")
    max_iters: int = option(400, "updates of the model of induction.py", low=1)
    seed: int = option(1337, "random seed of this model", low=0)
    plot: str = option("patching.svg", "plot to write: .svg", is_path=True)


def stream(model: Model, ids: list[int]) -> np.ndarray:
    """The stream before the first layer and after each: (L + 1, T, C)."""
    with no_grad(), recorded(model, type(model.blocks[0])) as calls:
        model(Tensor(np.array([ids])))
    return np.stack([x.numpy()[0] for x in (calls[0].args[0], *(call.result for call in calls))])


def answers(model: Model, x: np.ndarray, layer: int) -> np.ndarray:
    """The logits of the next token if the stream after `layer` layers is x: (B, T, C) -> (B, V)."""
    with no_grad():
        x = Tensor(x)
        for block in model.blocks[layer:]:
            x = block(x, is_causal=True)
        return model.read(x).numpy()[:, -1]


def patching(model: Model, a: list[int], b: list[int], chosen: Sequence[int | None]) -> tuple[np.ndarray, list[int]]:
    """The effect of every patch (L + 1, T), and the answers to both prompts.

    Args:
        chosen: the answers; None: the most probable token.
    Raises: OptionError if the model does not tell the prompts apart.
    """
    streams, last = [stream(model, ids) for ids in (a, b)], len(model.blocks)
    logits = np.concatenate([answers(model, x[last:], last) for x in streams]).astype(float)
    one, other = [int(row.argmax()) if token is None else token for row, token in zip(logits, chosen, strict=True)]
    d_a, d_b = logits[:, one] - logits[:, other]
    if d_a == d_b:
        raise OptionError("--a and --b: the model answers both alike, so nothing can move: change one of them")
    effects, every = [], np.arange(len(a))
    for layer, (of_a, of_b) in enumerate(zip(*streams, strict=True)):
        patched = np.repeat(of_b[None], len(a), axis=0)  # (T, T, C): a run for each position
        patched[every, every] = of_a
        after = answers(model, patched, layer).astype(float)
        effects.append((after[:, one] - after[:, other] - d_b) / (d_a - d_b))
    return np.array(effects), [one, other]


def draw(effects: np.ndarray, columns: list[str], rows: list[str], title: str, file: str) -> None:
    """A box for each layer and position, blue where the answer moves towards A's, and orange where it moves away."""
    side, left, top = 46, 110, 66
    page = Page(left + side * len(columns) + 20, top + side * len(rows) + 20, title)
    page.box(left - 1, top - 1, side * len(columns), side * len(rows), TINT)
    for t, column in enumerate(columns):
        page.text(left + side * (t + 0.5), top - 8, column, "middle")
    for layer, row in enumerate(rows):
        page.text(left - 8, top + side * (layer + 0.5) + 4, row, "end")
        for t, effect in enumerate(effects[layer]):
            x, y = left + side * t, top + side * layer
            page.box(x, y, side - 2, side - 2, COLOURS[0 if effect > 0 else 1], 0.65 * min(1, abs(effect)))
            page.text(x + side / 2, y + side / 2 + 3, f"{effect:z.2f}", "middle")
    page.write(file)


def tokens_of(letters: str) -> list[int]:
    """The tokens of induction.py that stand for the letters of a prompt.

    Raises: OptionError if one of them stands for none.
    """
    if unknown := set(letters) - set(ALPHABET):
        raise OptionError(f"--a and --b: {min(unknown)!r} is not a token of this model: write letters and digits")
    return [ALPHABET.index(letter) for letter in letters]


def learned(options: PatchingOptions) -> AttentionOnly:
    """The model of induction.py, trained."""
    say(f"training the model of induction.py for {options.max_iters} updates")
    manual_seed(options.seed)
    model = AttentionOnly(layers=2)
    with threadpool_limits(1):  # the products are too small for more threads
        for _ in train(model, options.max_iters, options.seed):
            pass
    return model


def main(argv: list[str]) -> int:
    """Patch every layer and position, print the effects and draw them."""
    about = "Copy a model's stream from one prompt into another, place by place."
    command = "python docs/course/15-inside/patching.py"
    options, names = read_command(PatchingOptions, argv, command, about, "CHECKPOINT")
    check_plot(options.plot)
    encode, words, longest = tokens_of, lambda ids: [ALPHABET[token] for token in ids], LENGTH
    if names:
        trained = load_trained(Path(names[0]))
        encode, longest = trained.tokenizer.encode, trained.config.block_size
        words = functools.partial(pieces, trained.tokenizer)
    a, b = encode(options.a), encode(options.b)
    if len(a) != len(b) or not 0 < len(a) <= longest:
        counts = f"{len(a)} and {len(b)}"
        raise OptionError(f"--a and --b: they have {counts} tokens, but need the same number, from 1 to {longest}")
    model = trained.make_model() if names else learned(options)
    chosen = [encode(text)[0] if text else None for text in (options.answer_a, options.answer_b)]
    effects, both = patching(model.eval(), a, b, chosen)
    columns = [one if one == other else f"{one}/{other}" for one, other in zip(words(a), words(b), strict=True)]
    rows = ["embedding", *(f"after layer {layer + 1}" for layer in range(len(model.blocks)))]
    answer_a, answer_b = words(both)
    print(f"A's answer is {answer_a}, B's is {answer_b}\n")
    width = max(map(len, [*columns, "0.00"])) + 2
    print(f"{'A/B':<14}" + "".join(f"{column:>{width}}" for column in columns))
    for row, numbers in zip(rows, effects, strict=True):
        print(f"{row:<14}" + "".join(f"{effect:z{width}.2f}" for effect in numbers))
    draw(effects, columns, rows, f"From B's answer, {answer_b} = 0, to A's, {answer_a} = 1", options.plot)
    return 0


if __name__ == "__main__":
    run_command("patching", main)
