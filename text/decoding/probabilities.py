"""How confident was the model? Each token in the colour of its probability, and the entropy at its position.

The probability p is the model's own, before temperature, filters and penalties. The entropy measures the uncertainty
before the choice: H = -Σ_i p_i log2 p_i bits, 0 if only one token was possible and log2 V if all V were equally
probable. A token of low probability is a surprise where the entropy is low; where it is high, every token is.
"""

from collections import deque

import numpy as np

from text.decoding.sampling import State, Step
from text.tokenizers.base import Tokenizer
from training.cli.console import RESET, visible

# Minimum probability -> colours: none, then black on grey, on light brown and on orange, from the palette of 256. Each
# is visible on light and dark terminals, and with any kind of colour vision: the more colour, the greater the surprise.
COLOURS = {0.5: "", **{p: f"\x1b[38;5;16;48;5;{ground}m" for p, ground in ((0.1, 102), (0.01, 137), (0.0, 208))}}


def entropy(log_probs: np.ndarray) -> np.ndarray:
    """H = -Σ p log2 p in bits, along the last axis: (..., V) -> (...).

    >>> entropy(np.log([0.5, 0.25, 0.25])).round(9).item()
    1.5
    """
    nats = np.asarray(log_probs, np.float64)
    finite = np.where(np.isneginf(nats), 0.0, nats)  # p log p is 0 for p = 0
    return -(np.exp(nats) * finite).sum(axis=-1) / np.log(2)


def legend(colour: bool) -> str:
    """What the colours mean, in these colours.

    >>> legend(colour=False)
    'probability, the more orange the lower:  from 0.5  from 0.1  from 0.01  below '
    """
    steps = {f" from {least:g} " if least else " below ": paint for least, paint in COLOURS.items()}
    shown = (f"{paint}{words}{RESET}" if colour and paint else words for words, paint in steps.items())
    return f"probability, the more orange the lower: {''.join(shown)}"


class Probabilities:
    """Records the probability of each token that `generate` chooses for one row of text.

    `watch` wraps the model's step, `note` records each chosen token with the text that it completes, and `paint`
    colours the text for output, which may happen later and in different pieces.

    Args:
        log_probs: (1, V) for the first token, as passed to `generate`.
        colour: whether `paint` adds colours.
    """

    def __init__(self, tokenizer: Tokenizer, log_probs: np.ndarray, colour: bool) -> None:
        self._tokenizer, self._log_probs, self._colour = tokenizer, log_probs, colour
        self._colours: deque[str] = deque()  # one for each character that is recorded and not yet painted
        self.rows: list[tuple[int, float, float]] = []  # each token, its probability, the entropy in bits

    def watch(self, step: Step) -> Step:
        """The same step of the model; its log-probabilities are remembered until the token is recorded."""

        def watched(tokens: np.ndarray, state: State) -> tuple[np.ndarray, State]:
            self._log_probs, state = step(tokens, state)
            return self._log_probs, state

        return watched

    def note(self, token: int, text: str) -> None:
        """Record the token just chosen, and the text that it completes."""
        probability = float(np.exp(self._log_probs[0, token]))
        self.rows.append((token, probability, float(entropy(self._log_probs[0]))))
        self._colours.extend([next(colour for least, colour in COLOURS.items() if probability >= least)] * len(text))

    def paint(self, text: str) -> str:
        """Text in the colours of its tokens. Line ends have none: a background would extend to the margin."""
        if not self._colour:
            return visible(text)
        painted = []
        for character in text:
            colour = self._colours.popleft() if self._colours else ""
            plain = character == "\n" or not colour
            painted.append(visible(character) if plain else colour + visible(character) + RESET)
        return "".join(painted)

    def table(self) -> str:
        """A line for each position: token, probability, entropy in bits, and the entropy as a bar."""
        lines = [f"{'position':>8}  {'token':<12} {'probability':>11} {'entropy':>8}"]
        for position, (token, probability, bits) in enumerate(self.rows, start=1):
            bar = "#" * round(4 * bits)
            shown = self._tokenizer.render(token).replace(" ", "·")
            lines.append(f"{position:>8}  {shown:<12} {probability:>11.4f} {bits:>8.3f} {bar}".rstrip())
        if self.rows:
            lines.append(f"mean entropy {np.mean([bits for _, _, bits in self.rows]):.3f} bits")
        return "\n".join(lines)
