"""Train a small GPT with your answers to the exercises in place of the project's functions.

    python docs/course/run.py                                 with what you have filled in so far
    python docs/course/run.py --answers solution.py           with the solutions

First it checks each answer that it can use, as check.py does. An answer that is right becomes a part of the model; a
blank or wrong one is replaced by the project's function. Then a GPT of 2 layers learns the poem of
chapter 4 and continues it. While it trains, every value and every gradient of an answer is compared with the project's:
an answer that is right for the numbers of its check and wrong for these ends the training, with one sentence.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import check  # first, because it looks for Python 3.11 and the packages

# isort: split
import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from text.decoding.sampling import Sampling, filter_tokens
from text.tokenizers.bpe import reference_merges
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite import functional as F
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.optim import adamw, trapezoid
from tinygrad_lite.tensor import node
from training.cli.command_line import read_command
from training.cli.console import run_command

# The exercises that a GPT needs, with their chapters. All others ask for numbers, or for parts of other models.
EXERCISES = {
    **{"next_merge": 5, "encode": 5, "decode": 5, "batch": 8},
    **{"pick": 2, "linear": 2, "rms_norm": 14, "rms_norm_backward": 7, "rotary": 14, "causal_attention": 6},
    **{"swiglu": 14, "block": 7, "cross_entropy": 9, "clip": 9, "adamw": 9, "trapezoid": 14},
    **{"bits_per_character": 4, "temperature": 10, "nucleus": 10},
}
MERGES, WIDTH, HIDDEN, HEADS, LAYERS, LENGTH, ROWS = 60, 32, 64, 2, 2, 32, 4
HEAD = WIDTH // HEADS
FREQUENCIES = tuple(100.0 ** -(i / (HEAD // 2)) for i in range(HEAD // 2))  # radians per position
PEAK, BETAS, EPS, DECAY, LIMIT = 0.01, (0.9, 0.99), 1e-8, 1.0, 1.0


@dataclass
class RunOptions:
    """The options of a run."""

    answers: str = option("exercise.py", "the file with the answers, in docs/course/answers/ or a chapter's folder")
    max_iters: int = option(300, "updates")
    seed: int = option(1, "random seed")


# --- the answers -------------------------------------------------------------------------------------------------


class Answers:
    """The answers that are right, each called in place of the project's function and compared with it.

    Attributes:
        right: the functions, by name.
        modules: the files that they come from, by chapter.
    """

    def __init__(self, file: str) -> None:
        self.file, self.right, self.wrong, self.modules = file, {}, {}, {}
        for chapter, folder in check.chapters().items():
            names = [name for name, number in EXERCISES.items() if number == chapter]
            if names:
                self.read(chapter, folder, names)

    def read(self, chapter: int, folder: Path, names: list[str]) -> None:
        """Sort the answers of one chapter: right, wrong with the reason, or neither, which is blank."""
        file = check.answers_in(folder, self.file)
        try:
            self.modules[chapter] = check.load(file, folder)
            outcomes = {outcome.name: outcome for outcome in check.check(folder, file, names)}
        except UserError as error:  # the file itself cannot be run
            self.wrong |= dict.fromkeys(names, str(error))
            return
        for name in names:
            if outcomes[name].is_right:
                self.right[name] = getattr(self.modules[chapter], name)
            elif outcomes[name].wrong != check.BLANK:
                self.wrong[name] = outcomes[name].wrong

    def report(self) -> None:
        """Print whose each part is."""
        for name, chapter in EXERCISES.items():
            blank = "the project's, because yours is blank"
            state = "yours" if name in self.right else f"wrong: {self.wrong[name]}" if name in self.wrong else blank
            print(f"{name} (chapter {chapter}): {state}")

    def module(self, name: str) -> ModuleType:
        """The file in which the answer to this exercise is."""
        return self.modules[EXERCISES[name]]

    def call(self, name: str, *arguments):
        """What an answer returns.

        Raises: UserError if it raises an error, although its check has found it right.
        """
        try:
            return self.right[name](*arguments)
        except UserError:  # from an answer inside this one
            raise
        except Exception as error:
            file = Path(self.module(name).__file__)
            raise self.error(name, check.describe(error, file)) from None

    def same(self, name: str, answer, expected, what: str = "its result"):
        """The answer, if it is what the project's function returns.

        Both are computed in float64, whose rounding errors (1e-16) grow to about 1e-13 in sums of this length; 1e-6
        leaves room for a different order of summation, and no mistake that matters is that small.

        Raises: UserError if it is not.
        """
        answer, expected = np.asarray(answer), np.asarray(expected)
        if answer.shape != expected.shape:
            raise self.error(name, f"{what} has the shape {answer.shape}, not {expected.shape}")
        difference = np.abs(answer - expected).max()
        if not difference <= 1e-6 * (1 + np.abs(expected).max()):  # also if it is NaN
            raise self.error(name, f"{what} differs by {difference:.3g} from the project's")
        return answer

    def error(self, name: str, reason: str) -> UserError:
        """The sentence for an answer that fails in training."""
        return UserError(f"{name} (chapter {EXERCISES[name]}) passes its check, but not in training: {reason}")

    def operation(
        self,
        name: str,
        ours: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
        value: Callable[..., np.ndarray],
        gradients: Callable[..., tuple] | None = None,
        gradient_name: str = "",
    ) -> Tensor:
        """An operation of the model: the answer's value and, where the exercise has one, its gradient.

        Args:
            ours: the project's function of the inputs. It stays in the graph where the exercise is about the value
                alone: then the gradient that arrives at the value is passed on to the project's result.
            value: the answer as a function of the inputs' arrays.
            gradients: takes dL/dy and the arrays, and returns dL/d(input) for each input.
            gradient_name: the exercise to which `gradients` belongs, if it is a different one.
        """
        arrays = [x.numpy() for x in inputs]
        result = ours(*inputs)
        y = self.same(name, value(*arrays), result.numpy()) if name in self.right else result.numpy()
        gradient_name = gradient_name or name
        if gradients is None or gradient_name not in self.right:
            return node(y, (result,), lambda dy: (dy,), name)

        def backward(dy):
            leaves = [Tensor(array, requires_grad=True) for array in arrays]
            (ours(*leaves) * Tensor(dy)).sum().backward()
            pairs = zip(gradients(dy, *arrays), leaves, strict=True)
            return tuple(self.same(gradient_name, dx, leaf.grad.numpy(), "its gradient") for dx, leaf in pairs)

        return node(y, inputs, backward, gradient_name)

    def tiny(self, name: str, *arrays: np.ndarray, places: list[int] | None = None):
        """An answer of chapter 2, which takes and returns chapter 2's tensors."""
        tensors = [self.module(name).TinyTensor(array) for array in arrays]
        return self.call(name, *tensors) if places is None else self.call(name, *tensors, places)


# --- the model ---------------------------------------------------------------------------------------------------


class Model:
    """A GPT with modern parts: RMS norm, rotary positions, SwiGLU, a tied table. B rows, T positions, V tokens."""

    def __init__(self, answers: Answers, vocab_size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes = {"table": (vocab_size, WIDTH)}
        for layer in range(LAYERS):
            sizes |= {f"{layer}.{name}": (WIDTH, WIDTH) for name in ("query", "key", "value", "output")}
            sizes |= {
                f"{layer}.gate": (HIDDEN, WIDTH),
                f"{layer}.up": (HIDDEN, WIDTH),
                f"{layer}.down": (WIDTH, HIDDEN),
            }
        self.answers = answers
        self.weights = {
            n: Tensor(rng.normal(0, size[1] ** -0.5, size), requires_grad=True) for n, size in sizes.items()
        }

    def logits(self, ids: np.ndarray) -> Tensor:
        """(B, T) tokens -> (B T, V)."""
        x = self.pick(ids.ravel(), self.weights["table"]).reshape(*ids.shape, WIDTH)
        for layer in range(LAYERS):
            branches = functools.partial(self.attention, layer), functools.partial(self.feed_forward, layer)
            if "block" in self.answers.right:
                x = self.answers.call("block", x, *branches, self.norm, self.norm)
            else:
                x = x + branches[0](self.norm(x))
                x = x + branches[1](self.norm(x))
        return self.linear(self.norm(x).reshape(-1, WIDTH), self.weights["table"])

    def pick(self, ids: np.ndarray, table: Tensor) -> Tensor:
        """The rows of a table: (N,) tokens -> (N, C)."""
        places = ids.tolist()
        return self.answers.operation(
            "pick",
            lambda table: F.embedding(Tensor(ids), table),
            (table,),
            lambda table: self.answers.tiny("pick", table, places=places).value,
            lambda dy, table: self.answers.tiny("pick", table, places=places).derivative(dy),
        )

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """x W^T: (N, C_in), (C_out, C_in) -> (N, C_out)."""
        bias = np.zeros(weight.shape[0])
        return self.answers.operation(
            "linear",
            F.linear,
            (x, weight),
            lambda x, weight: self.answers.tiny("linear", x, weight, bias).value,
            lambda dy, x, weight: self.answers.tiny("linear", x, weight, bias).derivative(dy)[:2],
        )

    def norm(self, x: Tensor) -> Tensor:
        """RMS norm; its value is an exercise in chapter 14, its gradient one in chapter 7."""

        def gradient(dy: np.ndarray, x: np.ndarray) -> tuple:
            rows = x.reshape(-1, x.shape[-1])
            r = (np.mean(rows**2, axis=-1, keepdims=True) + 1e-5) ** -0.5
            dx = self.answers.call("rms_norm_backward", dy.reshape(rows.shape), rows * r, r)
            return (np.reshape(dx, x.shape),)

        value = functools.partial(self.answers.call, "rms_norm")
        return self.answers.operation("rms_norm", F.rms_norm, (x,), value, gradient, "rms_norm_backward")

    def attention(self, layer: int, x: Tensor) -> Tensor:
        """Causal self-attention: (B, T, C) -> (B, T, C)."""
        rows, length, _ = x.shape
        maps = (
            self.linear(x.reshape(-1, WIDTH), self.weights[f"{layer}.{name}"]) for name in ("query", "key", "value")
        )
        q, k, v = (y.reshape(rows, length, HEADS, HEAD) for y in maps)
        q, k, v = (y.permute(0, 2, 1, 3) for y in (self.rotary(q), self.rotary(k), v))  # (B, H, T, D)
        y = self.answers.operation(
            "causal_attention",
            functools.partial(F.scaled_dot_product_attention, is_causal=True),
            (q, k, v),
            functools.partial(self.answers.call, "causal_attention"),
        )
        y = y.permute(0, 2, 1, 3).reshape(-1, WIDTH)
        return self.linear(y, self.weights[f"{layer}.output"]).reshape(rows, length, WIDTH)

    def rotary(self, x: Tensor) -> Tensor:
        """Turn every pair of (B, T, H, D) by its position; the gradient is turned back."""

        def turned(x: np.ndarray, direction: int) -> np.ndarray:
            y = np.empty_like(x)
            for b, t, h in np.ndindex(x.shape[:3]):
                y[b, t, h] = self.answers.call("rotary", x[b, t, h], direction * t, np.array(FREQUENCIES))
            return y

        return self.answers.operation(
            "rotary",
            lambda x: F.rotary(x, Tensor(np.arange(x.shape[1])), FREQUENCIES),
            (x,),
            lambda x: turned(x, 1),
            lambda dy, x: (turned(dy, -1),),
        )

    def feed_forward(self, layer: int, x: Tensor) -> Tensor:
        """SwiGLU: (B, T, C) -> (B, T, C)."""
        weights = tuple(self.weights[f"{layer}.{name}"] for name in ("gate", "up", "down"))

        def ours(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
            return F.linear(F.swiglu(F.linear(x, gate), F.linear(x, up)), down)

        return self.answers.operation("swiglu", ours, (x, *weights), functools.partial(self.answers.call, "swiglu"))

    def loss(self, ids: np.ndarray, targets: np.ndarray) -> Tensor:
        """The mean cross-entropy in nats per token. The answer returns that of one prediction, and its gradient."""

        def each(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            pairs = zip(logits, targets.ravel().tolist(), strict=True)
            losses, gradients = zip(
                *(self.answers.call("cross_entropy", row.copy(), t) for row, t in pairs), strict=True
            )
            return np.mean(losses), np.array(gradients) / len(losses)

        return self.answers.operation(
            "cross_entropy",
            lambda logits: F.cross_entropy(logits, Tensor(targets.ravel())),
            (self.logits(ids),),
            lambda logits: each(logits)[0],
            lambda dy, logits: (dy * each(logits)[1],),
        )


# --- tokens ------------------------------------------------------------------------------------------------------


class Tokens:
    """Byte pairs of characters: `pieces` has the text of each token. A word keeps the space or line break before it."""

    def __init__(self, answers: Answers, text: str) -> None:
        self.answers, self.merges = answers, []
        words = Counter(self.words(text))
        for _ in range(MERGES):
            spelled = {tuple(self.cut(word)): count for word, count in words.items()}
            self.merges.append(self.next_merge(spelled))
        self.pieces = [*sorted(set(text)), *("".join(pair) for pair in self.merges)]
        self.numbers = {piece: number for number, piece in enumerate(self.pieces)}

    @staticmethod
    def words(text: str) -> list[str]:
        """A text cut into the pieces within which pairs are merged."""
        return re.findall(r"\s*\S+|\s+", text)

    def next_merge(self, spelled: dict[tuple, int]) -> tuple[str, str]:
        """The pair to merge next."""
        tokens = sorted({token for word in spelled for token in word})
        lengths = [len(token) for token in tokens]
        ((left, right),) = reference_merges(spelled, 1, lambda word: [tokens.index(t) for t in word], lengths)
        expected = tokens[left], tokens[right]
        if "next_merge" not in self.answers.right:
            return expected
        pair = self.answers.call("next_merge", dict(spelled))
        if pair != expected:
            raise self.answers.error("next_merge", f"it chooses {pair}, and not {expected}")
        return pair

    def cut(self, word: str) -> list[str]:
        """A word as tokens, merged by rank."""
        expected = list(word)
        for left, right in self.merges:
            i = 0
            while i < len(expected) - 1:
                if (expected[i], expected[i + 1]) == (left, right):
                    expected[i : i + 2] = [left + right]
                i += 1
        if "encode" not in self.answers.right:
            return expected
        tokens = list(self.answers.call("encode", word, list(self.merges)))
        if tokens != expected:
            raise self.answers.error("encode", f"{word!r} becomes {tokens}, and not {expected}")
        return tokens

    def encode(self, text: str) -> np.ndarray:
        """A text as the numbers of its tokens; characters that the first text did not have are left out."""
        return np.array([self.numbers[t] for word in self.words(text) for t in self.cut(word) if t in self.numbers])

    def decode(self, ids: list[int]) -> str:
        """The text of some tokens."""
        expected = "".join(self.pieces[token] for token in ids)
        if "decode" not in self.answers.right:
            return expected
        text = self.answers.call("decode", list(ids), [piece.encode() for piece in self.pieces])
        if text != expected:
            raise self.answers.error("decode", f"{ids} become {text!r}, and not {expected!r}")
        return text


# --- learning and writing ----------------------------------------------------------------------------------------


def train(model: Model, tokens: np.ndarray, max_iters: int, seed: int) -> list[float]:
    """Learn from the tokens of a text. Returns: the loss of each update, in nats per token."""
    answers, losses = model.answers, []
    moments = {name: [np.zeros(w.shape), np.zeros(w.shape)] for name, w in model.weights.items()}
    for step in range(max_iters):
        starts = np.random.default_rng((seed, step)).integers(0, len(tokens) - LENGTH, ROWS)
        loss = model.loss(*batch(answers, tokens, starts))
        for weight in model.weights.values():
            weight.grad = None
        loss.backward()
        gradients = clip(answers, [weight.grad.numpy() for weight in model.weights.values()])
        rate = trapezoid(step, PEAK, 0, max_iters, 0.0, 0.4)
        if "trapezoid" in answers.right:
            rate = float(answers.same("trapezoid", answers.call("trapezoid", step, PEAK, max_iters, 0.4), rate))
        for (name, weight), gradient in zip(model.weights.items(), gradients, strict=True):
            update(answers, weight, gradient, moments[name], step + 1, rate)
        losses.append(loss.item())
        if step % 50 == 0 or step == max_iters - 1:
            print(f"step {step + 1}: loss {losses[-1]:.3f} nats per token", flush=True)
    return losses


def batch(answers: Answers, tokens: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The windows that begin at `starts`, and their targets: both (B, T)."""
    windows = tokens[starts[:, None] + np.arange(LENGTH + 1)]
    if "batch" not in answers.right:
        return windows[:, :-1], windows[:, 1:]
    ids, targets = answers.call("batch", tokens.copy(), starts, LENGTH)
    return answers.same("batch", ids, windows[:, :-1]), answers.same("batch", targets, windows[:, 1:])


def clip(answers: Answers, gradients: list[np.ndarray]) -> list[np.ndarray]:
    """All gradients, scaled down together if their norm exceeds the limit."""
    norm = sum(float((gradient**2).sum()) for gradient in gradients) ** 0.5
    expected = [gradient * min(1.0, LIMIT / norm) for gradient in gradients]
    if "clip" not in answers.right:
        return expected
    clipped = answers.call("clip", [gradient.copy() for gradient in gradients], LIMIT)
    return [answers.same("clip", mine, ours) for mine, ours in zip(clipped, expected, strict=True)]


def update(
    answers: Answers, weight: Tensor, gradient: np.ndarray, moments: list[np.ndarray], step: int, rate: float
) -> None:
    """One step of AdamW for one matrix; `moments` are replaced."""
    expected = [Tensor(array.copy()) for array in (weight.numpy(), *moments)]
    adamw.composed(expected[0], Tensor(gradient), *expected[1:], step, rate, *BETAS, EPS, DECAY)
    results = [tensor.numpy() for tensor in expected]
    if "adamw" in answers.right:
        numbers = step, rate, *BETAS, EPS, DECAY
        mine = answers.call("adamw", weight.numpy().copy(), gradient.copy(), *moments, *numbers)
        results = [answers.same("adamw", mine[i], results[i], f"its {'wmv'[i]}") for i in range(3)]
    weight.data[...] = results[0]
    moments[:] = results[1:]


def write(model: Model, tokens: Tokens, start: str, count: int, seed: int) -> str:
    """A text continued by `count` tokens, at temperature 0.5, from a nucleus of 0.9."""
    ids, rng = tokens.encode(start).tolist(), np.random.default_rng(seed)
    for _ in range(count):
        with no_grad():
            logits = model.logits(np.array([ids[-LENGTH:]])).numpy()[-1]
        probs = np.exp(logits - logits.max())
        probs = filtered(model.answers, "temperature", probs / probs.sum(), temperature=0.5)
        ids.append(int(rng.choice(len(probs), p=filtered(model.answers, "nucleus", probs, top_p=0.9))))
    return tokens.decode(ids)


def filtered(answers: Answers, name: str, probs: np.ndarray, **setting: float) -> np.ndarray:
    """The probabilities (V,) after one step of decoding, which has one setting."""
    expected = np.exp(
        filter_tokens(np.log(np.maximum(probs, 1e-300))[None], Sampling(**{"temperature": 1.0} | setting))
    )[0]
    expected /= expected.sum()
    if name not in answers.right:
        return expected
    return answers.same(name, answers.call(name, probs.copy(), *setting.values()), expected)


def held_out_bits(model: Model, tokens: Tokens, text: str) -> float:
    """Bits per character of a text, predicted in windows."""
    answers, ids = model.answers, tokens.encode(text)
    with no_grad():
        parts = [ids[i : i + LENGTH + 1] for i in range(0, len(ids) - 1, LENGTH)]
        nats = sum(model.loss(part[None, :-1], part[None, 1:]).item() * (len(part) - 1) for part in parts)
    mean, predicted, characters = nats / (len(ids) - 1), ids[1:].tolist(), tokens.decode(ids[1:].tolist())
    expected = nats / np.log(2) / len(characters)
    if "bits_per_character" not in answers.right:
        return expected
    return float(
        answers.same("bits_per_character", answers.call("bits_per_character", mean, characters, predicted), expected)
    )


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status: 1 if an answer is wrong."""
    about = "Train a small GPT with your answers to the exercises."
    options, _ = read_command(RunOptions, argv, "python docs/course/run.py", about)
    for file in (check.answers_in(folder, options.answers) for folder in check.chapters().values()):
        if not file.is_file():
            raise OptionError(f"--answers {options.answers}: there is no {file}")
    answers = Answers(options.answers)
    answers.report()
    poem = check.load(check.chapters()[4] / "letters.py")
    tokens = Tokens(answers, poem.TRAIN)
    model = Model(answers, len(tokens.pieces), options.seed)
    print(f"\n{len(poem.TRAIN)} characters, {len(tokens.pieces)} tokens", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the training early
        train(model, tokens.encode(poem.TRAIN), options.max_iters, options.seed)
    print(f"held out: {held_out_bits(model, tokens, poem.HELD_OUT):.3f} bits per character\n")
    print(write(model, tokens, "Mein Vater", 80, options.seed))
    print(f"\n{len(answers.right)} of {len(EXERCISES)} parts are yours, {len(answers.wrong)} are wrong")
    return 1 if answers.wrong else 0


if __name__ == "__main__":
    run_command("run", main)
