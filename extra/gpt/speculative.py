"""Several tokens for one pass of a model: a cheap draft guesses them, and the model checks all of them at once.

    python sample.py smollm2 --draft lookup         it guesses what followed the last tokens before
    python sample.py out/goethe --draft goethe      it has counted what follows in a text
    python sample.py out/goethe --draft out/small   it is a smaller GPT with the same tokenizer

A pass over five tokens reads the weights once, as one over a single token does, and takes hardly longer where reading
them is what takes the time. Let p be the model's distribution of a token, and q the draft's, after the same filters.
The draft draws x from q. The model keeps it with probability min(1, p(x) / q(x)); otherwise it draws another token from
what p has more than q, max(p - q, 0), and the draft's later tokens are dropped. So the text has the distribution that
it has without a draft, however bad the draft is:

    P(y) = q(y) min(1, p(y) / q(y)) + P(dropped) max(p(y) - q(y), 0) / sum of max(p - q, 0)
         = min(p(y), q(y)) + p(y) - min(p(y), q(y)) = p(y),   since P(dropped) = 1 - sum of min(p, q) is that sum

If all are kept, one more token comes from the last p. A draft that names one token has q = 1 there.

References: Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding"
(arXiv:2211.17192), algorithm 1 and appendix A.1; Saxena 2023, "Prompt Lookup Decoding".
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from extra.gpt.trained import load_trained
from extra.pairs.made import CALCULATIONS
from extra.studies.baselines import count_grams, token_text
from gpt.model import GPT
from text.decoding.sampling import Sampling, filter_tokens, permitted
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError, counted
from tinygrad_lite.generator import GenerationState
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import KVCache
from training.corpora.texts import RECIPES, load_corpus
from training.family import Trained

LOOKUP = "lookup"
LONGEST = 4  # tokens of the text's end by which drafts find what may follow
Guess = tuple[list[int], np.ndarray]  # n tokens, and the distributions (n, V) that they were drawn from


class Draft(Protocol):
    """What guesses how a text goes on."""

    def guess(self, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
        """At most `count` tokens after these, at least one, each with its distribution."""


class Distribution:
    """How tokens are drawn: from log-probabilities to probabilities, as `generate` does it."""

    def __init__(self, sampling: Sampling, forbidden: Collection[int]) -> None:
        self.sampling, self.forbidden = sampling, forbidden

    def of(self, log_probs: np.ndarray) -> np.ndarray:
        """(n, V) -> (n, V), without what is forbidden or filtered; at temperature 0 the best token has 1."""
        values = permitted(log_probs, self.forbidden)
        if self.sampling.temperature == 0:
            return certain(values.argmax(axis=-1), values.shape[-1])
        powers = np.exp(filter_tokens(values, self.sampling))
        return powers / powers.sum(axis=-1, keepdims=True)


class Reader:
    """A model with the keys and values of the tokens that it has read, which it can forget again from the end."""

    def __init__(self, model: GPT) -> None:
        self.model, self.caches = model, model.new_caches()
        self.begin, self.known = 0, []  # where the window begins in the text, and its tokens in the cache

    def room(self, ids: Sequence[int]) -> int:
        """How many tokens may follow these in the window."""
        return max(0, self.model.config.block_size - len(ids) + self.begin)

    def after(self, ids: Sequence[int], count: int = 1) -> np.ndarray:
        """Log-probabilities of the token after each of the last `count` ones: (count, V).

        A full window is continued from its last half, as in `Generator.step`; `room` says when.
        """
        block_size = self.model.config.block_size
        if len(ids) - self.begin > block_size:
            self.begin = len(ids) - (max(1, block_size // 2) if self.known else block_size)
            self.known = []
        window = [*ids[self.begin :]]
        same = 0
        while same < min(len(self.known), len(window) - count) and self.known[same] == window[same]:
            same += 1
        for cache in self.caches:
            cache.cut(same)
        self.known, new = window, np.array([window[same:]])
        state = GenerationState(np.array([window]), self.caches)
        if new.shape[1] == 1:
            return self.model.log_probs(new, state)
        weight = self.model.token_embedding.weight
        with no_grad():
            logits = self.model.predict(Tensor(new, device=weight.device), state)[0, -count:]
            return logits.cast(weight.dtype).log_softmax().numpy()


# --- drafts ---------------------------------------------------------------------------------------------------------


class Lookup:
    """Guesses what followed the longest ending of the text when it stood there before."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def guess(self, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
        text = np.asarray(ids)
        for length in range(min(LONGEST, len(text) - 1), 0, -1):
            places = np.nonzero((sliding_window_view(text[:-1], length) == text[-length:]).all(axis=1))[0]
            if len(places):
                found = text[places[-1] + length :][:count].tolist()
                return found, certain(found, self.vocab_size)
        return [int(text[-1])], certain(text[-1:], self.vocab_size)


class Counts:
    """Guesses what most often follows the last tokens in a text."""

    def __init__(self, tokens: Sequence[int], vocab_size: int) -> None:
        text, self.vocab_size = token_text(tokens), vocab_size
        grams = {gram: count for n in range(1, LONGEST + 1) for gram, count in count_grams(text, n).items()}
        self.best = {gram[:-1]: ord(gram[-1]) for gram in sorted(grams, key=grams.get)}  # the most frequent comes last

    def guess(self, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
        found = []
        while len(found) < count:
            end = token_text([*ids, *found][1 - LONGEST :])
            found.append(next(self.best[end[i:]] for i in range(len(end) + 1) if end[i:] in self.best))
        return found, certain(found, self.vocab_size)


class Smaller:
    """Draws tokens from another GPT."""

    def __init__(self, model: GPT, distribution: Distribution) -> None:
        self.reader, self.distribution = Reader(model), distribution

    def guess(self, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
        found, q = [], []
        for _ in range(count):
            q.append(self.distribution.of(self.reader.after([*ids, *found]))[0])
            found.append(choose(q[-1], rng))
        return found, np.array(q)


def certain(tokens: Sequence[int], vocab_size: int) -> np.ndarray:
    """Distributions in which each of n tokens has all the probability: (n, V)."""
    return (np.asarray(tokens)[:, None] == np.arange(vocab_size)).astype(np.float64)


def choose(weights: np.ndarray, rng: np.random.Generator) -> int:
    """One of V tokens, drawn with a probability proportional to its weight."""
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))


# --- checking -------------------------------------------------------------------------------------------------------


def verified(p: np.ndarray, q: np.ndarray, guess: Sequence[int], rng: np.random.Generator) -> list[int]:
    """The guessed tokens that are kept, and one more from the model: see the top of this file.

    Args:
        p: the model's distributions, of each guessed token and of the one after them: (n + 1, V).
        q: those that the tokens were drawn from: (n, V).
    """
    for place, token in enumerate(guess):
        if rng.random() * q[place, token] >= p[place, token]:
            return [*guess[:place], choose(np.maximum(p[place] - q[place], 0), rng)]
    return [*guess, choose(p[-1], rng)]


class Drafted:
    """A GPT that a draft helps. To `generate`, whose random numbers it does not need, each next token is certain.

    Attributes:
        passes, tokens: of the model, and how many tokens they gave.
        offered, kept: tokens of the draft.
    """

    def __init__(self, model: GPT, draft: Draft, distribution: Distribution, count: int) -> None:
        self.config, self.model, self.draft, self.count = model.config, model, draft, count
        self.distribution, self.samples = distribution, 0
        self.passes = self.tokens = self.offered = self.kept = 0

    def start(self, prompts: Sequence[Sequence[int]], use_cache: bool = True) -> tuple[np.ndarray, None]:
        """Read one prompt, as `Generator.start` does."""
        self.ids, self.ready, self.reader = list(map(int, prompts[0])), [], Reader(self.model)
        self.samples += 1
        return self._next(), None

    def step(self, tokens: np.ndarray, _: None) -> tuple[np.ndarray, None]:
        """Append the token that was certain: what is certain next."""
        self.ids.append(int(tokens[0]))
        return self._next(), None

    def _next(self) -> np.ndarray:
        self.ready = self.ready or self._pass()
        with np.errstate(divide="ignore"):
            return np.log(certain([self.ready.pop(0)], self.config.vocab_size))

    def _pass(self) -> list[int]:
        """What one pass of the model gives: a token, and those of the draft that it keeps before it."""
        rng = keyed_rng(self.distribution.sampling.seed, "draft", self.samples, len(self.ids))
        count = min(self.count, self.reader.room(self.ids))
        guess, q = self.draft.guess(self.ids, count, rng) if count else ([], np.empty((0, self.config.vocab_size)))
        log_probs = self.reader.after([*self.ids, *guess], len(guess) + 1)
        found = verified(self.distribution.of(log_probs), q, guess, rng)
        self.passes, self.tokens = self.passes + 1, self.tokens + len(found)
        self.offered, self.kept = self.offered + len(guess), self.kept + len(found) - 1
        return found

    def summary(self) -> str:
        """How much the draft helped."""
        share = f"{self.kept:,} of the draft's {counted(self.offered, 'token')} kept"
        return f"{share}; {self.tokens / max(self.passes, 1):.2f} tokens per pass of the model"


def with_draft(options: Any, trained: Trained, model: GPT, ends: Collection[int]) -> Drafted:
    """The model with the draft that --draft names.

    Raises: OptionError if it does not fit the model.
    """
    name, tokenizer = options.draft, trained.tokenizer
    if trained.dataset == CALCULATIONS:
        raise OptionError("--draft cannot guess what a calculator answers: omit it for this model")
    if any(type(cache) is not KVCache for cache in model.new_caches(1)):
        raise OptionError("--draft needs a model whose layers can forget tokens: attention, without a window")
    distribution = Distribution(options.sampling(), [token for token in tokenizer.textless if token not in ends])
    draft: Draft
    if name == LOOKUP:
        draft = Lookup(tokenizer.vocab_size)
    elif name in RECIPES or Path(name).suffix == ".txt":
        text, _ = load_corpus(name).split()
        draft = Counts(tokenizer.encode(tokenizer.prepare(text)), tokenizer.vocab_size)
    else:
        other = load_trained(Path(name))
        if other.tokenizer.to_json() != tokenizer.to_json():
            raise OptionError(f"--draft {name}: a draft needs the model's tokenizer, and {other.path} has another one")
        draft = Smaller(other.make_model(), distribution)
    return Drafted(model, draft, distribution, options.draft_tokens)
