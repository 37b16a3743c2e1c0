"""A calculator that a GPT can call while it writes: it writes <calc>12*7</calc>, and the next characters are 84.

The request is text, like everything else the model writes. When it has written </calc>, the expression before it is
computed, and the result is what comes next: each of its tokens has probability 1 until it is complete. So a model that
calls is just a model whose next token is sometimes certain, and greedy decoding, sampling and beam search know nothing
about calls.

A model's text, including what a user made it write, is untrusted input. It is parsed by this grammar and nothing else:

    sum      = product { ("+" | "-") product }
    product  = factor { ("*" | "/") factor }
    factor   = "-" factor | digits | "(" sum ")"

Numbers are exact fractions, an expression has at most 64 characters, brackets are nested at most eight deep: it takes
microseconds. Anything else has no result, and the model continues as if it had made no call.

References: Schick et al. 2023, "Toolformer" (arXiv:2302.04761); Cobbe et al. 2021 (arXiv:2110.14168), section 5.2,
where a model calls a calculator in the same way.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from extra.pairs.made import CALCULATIONS
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite.generator import GenerationState

OPEN, CLOSE = "<calc>", "</calc>"
MAX_LENGTH, MAX_DEPTH = 64, 8
PLACES = 4  # decimal places of a result that is not an integer


def calculate(expression: str) -> str:
    """The value of an expression, rounded once, in decimal, half to even; empty if it has none.

    >>> calculate("12*7"), calculate("(1+2)/-4"), calculate("1/3"), calculate("2**3"), calculate("1/0")
    ('84', '-0.75', '0.3333', '', '')
    """
    if len(expression) > MAX_LENGTH or not re.fullmatch(r"[0-9+*/() -]+", expression):
        return ""
    tokens = re.findall(r"[0-9]+|[^0-9 ]", expression)[::-1]  # reversed: the next one is last
    try:
        value = read_sum(tokens, 0)
    except (ValueError, IndexError, ZeroDivisionError):
        return ""
    if tokens:
        return ""
    whole, places = divmod(abs(round(value * 10**PLACES)), 10**PLACES)
    number = f"{whole}.{places:0{PLACES}}".rstrip("0").rstrip(".")
    return f"-{number}" if value < 0 and number != "0" else number


def read_sum(tokens: list[str], depth: int) -> Fraction:
    """The value of the sum at the beginning of the tokens, which is removed from them."""
    value = read_product(tokens, depth)
    while tokens and tokens[-1] in "+-":
        sign = 1 if tokens.pop() == "+" else -1
        value += sign * read_product(tokens, depth)
    return value


def read_product(tokens: list[str], depth: int) -> Fraction:
    """Like `read_sum`, for a product."""
    value = read_factor(tokens, depth)
    while tokens and tokens[-1] in "*/":
        value = value * read_factor(tokens, depth) if tokens.pop() == "*" else value / read_factor(tokens, depth)
    return value


def read_factor(tokens: list[str], depth: int) -> Fraction:
    """Like `read_sum`, for a number, a sum in brackets, or the negative of either."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    token = tokens.pop()
    if token == "-":
        return -read_factor(tokens, depth + 1)
    if token != "(":
        return Fraction(int(token))
    value = read_sum(tokens, depth + 1)
    if tokens.pop() != ")":
        raise ValueError("a bracket is not closed")
    return value


def result_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of the result, if the text has just closed a call; none if it has no result, or unknown tokens."""
    _, opened, expression = text.removesuffix(CLOSE).rpartition(OPEN)
    if not text.endswith(CLOSE) or not opened:
        return []
    result = calculate(expression)
    return [] if tokenizer.unknown(result) else tokenizer.encode(result)


def computed(tokenizer: Tokenizer, ids: Sequence[int]) -> np.ndarray:
    """Which tokens of an answer are results of calls rather than the model's own: a boolean for each token."""
    found, text, due = np.zeros(len(ids), np.bool_), "", 0
    for place, token in enumerate(ids):
        text += tokenizer.decode([token])
        if due:
            found[place], due = True, due - 1
        else:
            due = len(result_ids(tokenizer, text))
    return found


def without_calls(answer: str) -> str:
    """What an answer says after its last call: "2166" of "<calc>57*38</calc>2166"."""
    return answer.rpartition(CLOSE)[2]


class Calls(NamedTuple):
    """The state of a model that can call: the model's own, what each row has written, and what it must write next."""

    state: GenerationState
    texts: list[str]
    due: list[list[int]]

    def select(self, rows: np.ndarray) -> Self:
        """The state of these rows, in this order."""
        return Calls(self.state.select(rows), *([each[row] for row in rows] for each in (self.texts, self.due)))


class CallingModel:
    """A GPT whose calls to the calculator are answered: see the top of this file."""

    def __init__(self, model: GPT, tokenizer: Tokenizer) -> None:
        self.config, self._model, self._tokenizer = model.config, model, tokenizer

    def start(self, prompts: Any, use_cache: bool = True) -> tuple[np.ndarray, Calls]:
        """Read a prompt per row: see `Generator.start`. A call in a prompt is only text."""
        log_probs, state = self._model.start(prompts, use_cache)
        return log_probs, Calls(state, [""] * len(log_probs), [[] for _ in log_probs])

    def step(self, tokens: np.ndarray, calls: Calls) -> tuple[np.ndarray, Calls]:
        """Append a token per row: see `Generator.step`."""
        log_probs, state = self._model.step(tokens, calls.state)
        texts = [text + self._tokenizer.decode([token]) for text, token in zip(calls.texts, tokens, strict=True)]
        rows = zip(calls.due, texts, strict=True)
        due = [rest[1:] if rest else result_ids(self._tokenizer, text) for rest, text in rows]
        if any(due):
            log_probs = log_probs.copy()  # the model's may be read-only
        for row, rest in enumerate(due):
            if rest:
                log_probs[row] = -np.inf
                log_probs[row, rest[0]] = 0
        return log_probs, Calls(state, texts, due)


def with_calculator(model: GPT, tokenizer: Tokenizer, dataset: str) -> GPT | CallingModel:
    """The model, with a calculator if it learned from answers that call one."""
    return CallingModel(model, tokenizer) if dataset == CALCULATIONS else model
