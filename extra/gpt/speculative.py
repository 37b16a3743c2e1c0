"""Several tokens for one pass of a model: a cheap draft guesses them, and the model checks all of them at once.

    python sample.py smollm2 --draft lookup         it guesses what followed the last tokens before
    python sample.py out/goethe --draft goethe      it has counted what follows in a text
    python sample.py out/goethe --draft out/small   it is a smaller GPT with the same tokenizer

A pass over five tokens reads the weights once, as one over a single token does, and takes hardly longer where reading
them is what takes the time. (Chapter 24 of the course measures where it does not.) Let p be the model's distribution of
a token, and q the draft's, after the same filters. The draft draws x from q. The model keeps it with probability
min(1, p(x) / q(x)); otherwise it draws another token from what p has more than q, max(p - q, 0), and the draft's later
tokens are dropped. So the text has the distribution that it has without a draft, however bad the draft is:

    P(y) = q(y) min(1, p(y) / q(y)) + P(dropped) max(p(y) - q(y), 0) / sum of max(p - q, 0)
         = min(p(y), q(y)) + p(y) - min(p(y), q(y)) = p(y),   since P(dropped) = 1 - sum of min(p, q) is that sum

If all are kept, one more token comes from the last p. A draft that names one token has q = 1 there.

References: Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding"
(arXiv:2211.17192), algorithm 1 and appendix A.1; Saxena 2023, "Prompt Lookup Decoding".
"""

import functools
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

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

LONGEST = 4  # tokens of the text's end by which drafts find what may follow
DrawnFrom = Callable[[np.ndarray], np.ndarray]  # from log-probabilities to the probabilities of drawing: (n, V)
# Tokens, and the distributions (n, V) that they were drawn from; None if nothing else was possible.
Guess = tuple[list[int], np.ndarray | None]
Draft = Callable[[Sequence[int], int, np.random.Generator], Guess]  # at most that many tokens after a text


def distribution(sampling: Sampling, forbidden: Collection[int], log_probs: np.ndarray) -> np.ndarray:
    """What tokens are drawn from, as in `generate`, without what is forbidden or filtered: (n, V) -> (n, V)."""
    values = permitted(log_probs, forbidden)
    if sampling.temperature == 0:
        return certain(values.argmax(axis=-1), values.shape[-1])
    powers = np.exp(filter_tokens(values, sampling))
    return powers / powers.sum(axis=-1, keepdims=True)


class Reader:
    """A model with the keys and values of the tokens that it has read, which it can forget again from the end."""

    def __init__(self, model: GPT) -> None:
        self.model, self.caches = model, model.new_caches()
        self.begin, self.known = 0, []  # where the window begins in the text, and its tokens in the cache

    def after(self, ids: Sequence[int], count: int = 1) -> np.ndarray:
        """Log-probabilities of the token after each of the last `count` ones: (count, V).

        A full window is continued from its last half, as in `Generator.step`; so is one that would be nearly empty,
        as after another text, or after many guesses that were dropped.
        """
        block_size = self.model.config.block_size
        if not min(len(ids), max(count, block_size // 4)) <= len(ids) - self.begin <= block_size:
            self.begin = max(0, len(ids) - (max(1, block_size // 2) if self.known else block_size))
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


def lookup(ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
    """Guess what followed the longest ending of the text when it stood there before."""
    text = np.asarray(ids)
    for length in range(min(LONGEST, len(text) - 1), 0, -1):
        places = np.nonzero((sliding_window_view(text[:-1], length) == text[-length:]).all(axis=1))[0]
        if len(places):
            return text[places[-1] + length :][:count].tolist(), None
    return [int(text[-1])], None


class Counts:
    """Guesses what most often follows the last tokens in a text, in which each token is a character."""

    def __init__(self, text: str) -> None:
        grams = {gram: count for n in range(1, LONGEST + 1) for gram, count in count_grams(text, n).items()}
        self.best = {gram[:-1]: ord(gram[-1]) for gram in sorted(grams, key=grams.get)}  # the most frequent comes last

    def __call__(self, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
        found = []
        while len(found) < count:
            end = token_text([*ids, *found][1 - LONGEST :])
            found.append(next(self.best[end[i:]] for i in range(len(end) + 1) if end[i:] in self.best))
        return found, None


def smaller(reader: Reader, drawn_from: DrawnFrom, ids: Sequence[int], count: int, rng: np.random.Generator) -> Guess:
    """Draw tokens from another GPT."""
    found, q = [], []
    for _ in range(count):
        q.append(drawn_from(reader.after([*ids, *found]))[0])
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
        passes: of the model, each of which gives one token more than it keeps of the draft.
        offered, kept: tokens of the draft.
    """

    def __init__(self, model: GPT, draft: Draft, drawn_from: DrawnFrom, count: int, seed: int) -> None:
        self.config, self.model, self.draft, self.drawn_from = model.config, model, draft, drawn_from
        self.count, self.seed, self.samples = count, seed, 0
        self.passes = self.offered = self.kept = 0

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
        rng = keyed_rng(self.seed, "draft", self.samples, len(self.ids))
        room = self.config.block_size - len(self.ids) + self.reader.begin  # for tokens in the window
        guess, q = self.draft(self.ids, min(self.count, room), rng) if room > 0 else ([], None)
        log_probs = self.reader.after([*self.ids, *guess], len(guess) + 1)
        q = certain(guess, log_probs.shape[1]) if q is None else q
        found = verified(self.drawn_from(log_probs), q, guess, rng)
        self.passes, self.offered, self.kept = self.passes + 1, self.offered + len(guess), self.kept + len(found) - 1
        return found

    def summary(self) -> str:
        """How much the draft helped."""
        share = f"{self.kept:,} of the draft's {counted(self.offered, 'token')} kept"
        return f"{share}; {1 + self.kept / max(self.passes, 1):.2f} tokens per pass of the model"


def with_draft(options: Any, trained: Trained, model: GPT, ends: Collection[int]) -> Drafted:
    """The model with the draft that --draft names.

    Raises: OptionError if it does not fit the model.
    """
    name, tokenizer = options.draft, trained.tokenizer
    if trained.dataset == CALCULATIONS:
        raise OptionError("--draft cannot guess what a calculator answers: omit it for this model")
    if any(type(cache) is not KVCache for cache in model.new_caches(1)):
        raise OptionError("--draft needs a model whose layers can forget tokens: attention, without a window")
    drawn_from = functools.partial(distribution, options.sampling(), {*tokenizer.textless} - {*ends})
    if name == "lookup":
        draft: Draft = lookup
    elif name in RECIPES or Path(name).suffix not in ("", ".safetensors"):
        text, _ = load_corpus(name, files=[] if name in RECIPES else [name]).split()
        draft = Counts(token_text(tokenizer.encode(tokenizer.prepare(text))))
    else:
        other = load_trained(Path(name))
        if other.tokenizer.to_json() != tokenizer.to_json():
            raise OptionError(f"--draft {name}: a draft needs the model's tokenizer, and {other.path} has another one")
        draft = functools.partial(smaller, Reader(other.make_model()), drawn_from)
    return Drafted(model, draft, drawn_from, options.draft_tokens, options.seed)
