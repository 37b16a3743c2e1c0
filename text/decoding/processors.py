"""Against repetition: make tokens that occurred before less probable, and forbid repeated n-grams.

A language model easily falls into a loop: a phrase that has occurred once is more probable to occur again. The two
remedies here change the log-probabilities of a step before temperature and filters, so they also work with greedy
decoding. Both use the whole text of a row so far, the prompt and the generated tokens.
"""

from collections import defaultdict

import numpy as np

from tinygrad_lite.errors import counted


class Repetition:
    """The tokens of B rows so far, and their effect on the next token of each row.

    1. Repetition penalty. Keskar et al. 2019 (CTRL, arXiv:1909.05858, eq. 2) divide the score x_i of every token i
       that occurs in the text by θ:  p_i ∝ e^(x_i / (T I(i))), with I(i) = θ for such a token and 1 for others.
       That presumes positive scores; a negative one divided by θ would increase. Here the scores are
       log-probabilities, which are never positive, so they are multiplied instead:

           l_i -> θ l_i,    that is    p_i -> p_i^θ    before renormalising.

       With θ > 1 a token never gains probability relative to new ones. (Other programs apply the penalty to the
       logits, where its strength depends on a constant that can be added to all logits without changing any
       probability. Here there is no such constant, so the same θ may be weaker or stronger than in other programs.)
       A token of probability 1 keeps it: what the model is certain of may be repeated.

    2. No n-gram twice. If the last n - 1 tokens have occurred in the text before, every token that followed them there
       gets probability 0. With n = 1 no token occurs twice.

    `note` keeps the state of both up to date without a search, at a constant cost per token.

    Args:
        rows, vocab_size: B and V.
        penalty: θ > 0; 1 changes nothing, and values below 1 favour repetition.
        ngram_size: n; 0 forbids nothing.
        prompt: (B, m), the token ids with which the texts begin; None: no tokens.
    Raises: ValueError if the prompt does not have B rows, or a token is not in the vocabulary.

    >>> repetition = Repetition(1, vocab_size=3, penalty=2.0, ngram_size=2, prompt=np.array([[0, 1, 0]]))
    >>> half = np.log([[0.5, 0.25, 0.25]])
    >>> np.exp(repetition.discourage(half, np.array([0]))).tolist()  # 0 is old; after a 0 there was a 1
    [[0.25, 0.0, 0.25]]
    """

    def __init__(self, rows: int, vocab_size: int, penalty: float, ngram_size: int, prompt: np.ndarray | None) -> None:
        self._penalty, self._ngram_size = penalty, ngram_size
        self._seen = np.zeros((rows, vocab_size), bool)
        # For each row: its last n - 1 tokens, and for every sequence of n - 1 tokens in it the tokens that followed.
        self._last: list[tuple[int, ...]] = [()] * rows
        self._followers: list[dict[tuple[int, ...], set[int]]] = [defaultdict(set) for _ in range(rows)]
        if prompt is not None:
            if prompt.ndim != 2 or len(prompt) != rows:
                raise ValueError(f"the prompt has the shape {prompt.shape}, but the text has {counted(rows, 'row')}")
            if prompt.size and not 0 <= prompt.min() <= prompt.max() < vocab_size:
                raise ValueError(f"the prompt has tokens outside of the vocabulary of {vocab_size} tokens")
            for tokens in prompt.T:
                self.note(tokens, np.arange(rows))

    def discourage(self, log_probs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The log-probabilities (N, V) of rows (N,) after both rules; not renormalised."""
        values = np.where(self._seen[rows], self._penalty * log_probs, log_probs)
        if self._ngram_size:
            for value, row in zip(values, rows, strict=True):
                value[list(self._followers[row].get(self._last[row], ()))] = -np.inf
        return values

    def note(self, tokens: np.ndarray, rows: np.ndarray) -> None:
        """Record one more token (N,) in each of the rows (N,)."""
        self._seen[rows, tokens] = True
        if not self._ngram_size:
            return
        before = self._ngram_size - 1
        for token, row in zip(tokens.tolist(), rows, strict=True):
            if len(self._last[row]) == before:
                self._followers[row][self._last[row]].add(token)
            self._last[row] = (*self._last[row], token)[-before:] if before else ()
