"""Checks of chapter 23: the methods must see what is planted, and nothing where nothing is."""

from contextlib import nullcontext
from hashlib import sha256

import numpy as np
from methods import used

from extra.museum.exhibits import EXHIBITS
from tinygrad_lite import Tensor, no_grad

_PLANTED = {exhibit.title: exhibit.planted for exhibit in EXHIBITS}
_SUMS = np.arange(30.0).reshape(5, 6)  # what each of five tokens adds to the logits of six


def leaks(exercise):
    """Copy the tokens, change one in the copy, and compare row by row what is before it. (token + 1) % vocab_size is
    another token. A difference of 1e-7 is rounding.
    """
    tokens = np.array([0, 3, 1, 4, 2, 4])
    calls = []

    def sound(tokens):
        calls.append(tokens.copy())
        return np.cumsum(_SUMS[tokens], axis=0) + 1e-7 * tokens.sum()

    def one_ahead(tokens):
        return sound(np.roll(tokens, -1))

    def everything(tokens):
        return sound(tokens)[-1:].repeat(6, axis=0)

    cases = [(sound, "a sound model", []), (one_ahead, "a model that sees one token ahead", [t_before := 3])]
    cases.append((everything, "a model that sees all tokens", [0, 1, 2, 3]))
    for predict, name, right in cases:
        _equal(exercise.leaks(predict, tokens, t_before + 1, 5), right, f"{name}, another token at 4")
        assert tokens.tolist() == [0, 3, 1, 4, 2, 4], "the tokens have been changed: change a copy"
        assert all(call.min() >= 0 and call.max() < 5 for call in calls), "the other token must be below vocab_size"
    task, model = used("gpt")

    def gpt(tokens):
        with no_grad():
            return model(Tensor(tokens[None])).numpy()[0]

    for title, right in (("", []), ("A mask that shows the next token", [6, 7])):
        with _PLANTED.get(title, nullcontext)():
            answer = exercise.leaks(gpt, np.arange(16), 8, task.tokenizer.vocab_size)
        _equal(answer, right, f"a GPT of two layers, with {title or 'nothing'} planted, another token at 8")


def company(exercise):
    """One call for all prompts, then one with a list of a single prompt for each of them; compare row by row."""
    prompts = [[1, 2, 3], [4], [2, 2]]

    def sound(prompts):
        return np.array([_SUMS[prompt].mean(0) + 1e-7 * len(prompts) for prompt in prompts])

    def padded(prompts):
        longest = max(map(len, prompts))
        return sound([[0] * (longest - len(prompt)) + prompt for prompt in prompts])

    _equal(exercise.company(sound, prompts), [], "a sound model")
    _equal(exercise.company(padded, prompts), [1, 2], "a model that reads the padding of shorter prompts")
    _, model = used("gpt")
    for title, right in (("", []), ("Padding that is read", [1, 2])):
        with _PLANTED.get(title, nullcontext)():
            answer = exercise.company(lambda prompts: model.start(prompts)[0], [[5, 6, 7, 8, 9], [7, 8], [9]])
        _equal(answer, right, f"a GPT with {title or 'nothing'} planted")


def stale(exercise):
    """Read the first token, and compare; then for each further token make a step, read all tokens so far without a
    cache, and compare.
    """
    for positions, title, right in (
        ("rotary", "", []),
        ("learned", "A cache in which every token is the first", [2, 3, 4, 5, 6]),
        ("rotary", "A last norm that is missing", [1, 2, 3, 4, 5, 6]),
    ):
        _, model = used("gpt", positions=positions)
        with _PLANTED.get(title, nullcontext)():
            answer = exercise.stale(model, [4, 5, 9, 6, 7, 8])
        _equal(answer, right, f"six tokens by a GPT with {title or 'nothing'} planted")


def _equal(answer, right, what):
    assert [*map(int, answer)] == right, f"{what}: yours is {answer}, it must be {right}"


_RIGHT = {"A": "1398b376", "B": "0e1ef516", "C": "90fce73c", "D": "9102326a", "E": "ef099fce"}


def _riddle(exercise, name):
    answer = getattr(exercise, name)
    assert answer in range(1, 17), f"{answer!r} is not a number from 1 to 16"
    assert sha256(f"{name}{answer}".encode()).hexdigest()[:8] == _RIGHT[name], f"it is not {answer}"


def A(exercise):
    """Which method catches it, and which faults of the list does that method catch? Repeat the method with a single
    micro-batch.
    """
    _riddle(exercise, "A")


def B(exercise):
    """Look at what `alone` and `kept` say: is the first prediction moved, or only later ones? In which models, and with
    which kinds of positions?
    """
    _riddle(exercise, "B")


def C(exercise):
    """Let your `leaks` say which positions see token 12: the one before it, all before it, or others?"""
    _riddle(exercise, "C")


def D(exercise):
    """Two faults move an evaluation. Call `model.eval()` yourself, and then `model.loss(batch)` twice."""
    _riddle(exercise, "D")


def E(exercise):
    """It learns one batch, but does not write it. Print a row of ids and a row of targets of `task.batches(0)`."""
    _riddle(exercise, "E")
