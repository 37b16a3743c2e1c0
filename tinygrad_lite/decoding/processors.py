"""Against repetition: make tokens less probable that the text already has, and forbid n-grams to come twice.

Left to itself, a language model easily falls into a loop: what has been said once is a good reason to say it again.
The two cures here change the log-probabilities of a step before temperature and filters see them, so they work in
greedy decoding too. Both read the whole text of a row so far, its prompt and what was generated.
"""

from collections import defaultdict

import numpy as np


class Repetition:
    """What each of B rows has said so far, and what follows from that for its next token.

    1. Repetition penalty. Keskar et al. 2019 (CTRL, arXiv:1909.05858, eq. 2) divide the score x_i of every token i
       that the text already has by θ:  p_i ∝ e^(x_i / (T I(i))), with I(i) = θ for such a token and 1 for others.
       That presumes positive scores; divided by θ, a negative one would rise. Here the scores are log-probabilities,
       which are never positive, so they are multiplied instead:

           l_i -> θ l_i,    that is    p_i -> p_i^θ    before renormalising.

       With θ > 1 a token never gains on those that are new. (On the logits of a model, where other programs apply
       the penalty, its strength depends on a constant that can be added to all of them without changing any
       probability. Here there is no such constant, and numbers that suit other programs are weaker or stronger.)
       A token of probability 1 keeps it: what the model is sure of, it may say again.

    2. No n-gram twice. If the last n - 1 tokens have stood in the text before, every token that followed them there
       gets probability 0. With n = 1 no token comes twice.

    Nothing is searched: `note` keeps both facts up to date, at the same cost for the first token and the last.

    Args:
        rows, vocab_size: B and V.
        penalty: θ above 0; 1 changes nothing, and below 1 repetition is favoured.
        ngram_size: n; 0 forbids nothing.
        prompt: (B, m) token ids that the texts begin with.
    Raises: ValueError if the prompt does not have B rows, or a token is not in the vocabulary.

    >>> repetition = Repetition(1, vocab_size=3, penalty=2.0, ngram_size=2, prompt=np.array([[0, 1, 0]]))
    >>> half = np.log([[0.5, 0.25, 0.25]])
    >>> np.exp(repetition.discourage(half, np.array([0]))).tolist()  # 0 is old; after a 0 there was a 1
    [[0.25, 0.0, 0.25]]
    """

    def __init__(
        self, rows: int, vocab_size: int, penalty: float, ngram_size: int, prompt: np.ndarray | None = None
    ) -> None:
        self._penalty, self._ngram_size = penalty, ngram_size
        self._seen = np.zeros((rows, vocab_size), bool)
        # Of each row: its last n - 1 tokens, and for every such piece of its text the tokens that followed it.
        self._last: list[tuple[int, ...]] = [()] * rows
        self._followers: list[dict[tuple[int, ...], set[int]]] = [defaultdict(set) for _ in range(rows)]
        if prompt is not None:
            if prompt.ndim != 2 or len(prompt) != rows:
                raise ValueError(f"the prompt has the shape {prompt.shape}, but there are {rows} rows of text")
            if prompt.size and not 0 <= prompt.min() <= prompt.max() < vocab_size:
                raise ValueError(f"the prompt has tokens outside of the vocabulary of {vocab_size} tokens")
            for tokens in prompt.T:
                self.note(tokens, np.arange(rows))

    def discourage(self, log_probs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The log-probabilities (N, V) of these rows, (N,) numbers, as both rules change them; not renormalised."""
        values = np.where(self._seen[rows], self._penalty * log_probs, log_probs)
        if self._ngram_size:
            for value, row in zip(values, rows, strict=True):
                value[list(self._followers[row].get(self._last[row], ()))] = -np.inf
        return values

    def note(self, tokens: np.ndarray, rows: np.ndarray) -> None:
        """Take note of one more token in each of these rows: (N,) ids and (N,) numbers of rows."""
        self._seen[rows, tokens] = True
        if not self._ngram_size:
            return
        before = self._ngram_size - 1
        for token, row in zip(tokens.tolist(), rows, strict=True):
            if len(self._last[row]) == before:
                self._followers[row][self._last[row]].add(token)
            last = (*self._last[row], token)
            self._last[row] = last[len(last) - before :] if len(last) > before else last
