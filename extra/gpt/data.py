"""A training text with windows of another one among its own: `--replay`, against forgetting what came before."""

from dataclasses import dataclass

import numpy as np

from extra.gpt.options import GPTOptions
from gpt.data import TextData
from gpt.task import TextTask
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import CorpusError
from tinygrad_lite.random import keyed_rng
from training.corpora.texts import load_corpus


@dataclass
class ReplayedData(TextData):
    """A tokenized text, and another one.

    Attributes:
        replay: the tokens of the other text, from which some windows of each batch are taken.
    """

    replay: np.ndarray

    def batch(self, step: int, sequences: int) -> tuple[np.ndarray, np.ndarray]:
        """The windows of one update; the first of them are the other text's: in the long run exactly its share."""
        ids, targets = super().batch(step, sequences)
        before, after = (int(self.options.replay_share * sequences * steps) for steps in (step, step + 1))
        rng = keyed_rng(self.options.seed, "replay", step)
        starts = rng.integers(0, len(self.replay) - self.options.config.block_size, after - before)
        ids[: after - before], targets[: after - before] = self.windows(self.replay, starts)
        return ids, targets


def replayed_tokens(options: GPTOptions, tokenizer: Tokenizer) -> list[int]:
    """The tokens of the text that --replay names, without those of its held-out part.

    Raises: CorpusError if windows of it cannot begin at different places.
    """
    tokens = tokenizer.encode(load_corpus(options.replay).split()[0])
    if len(tokens) <= options.config.block_size + 1:
        raise CorpusError(f"--replay {options.replay} is too short for --block_size {options.config.block_size}")
    return tokens


class MixedTask(TextTask):
    """A training text, with windows of the one that --replay names, if any."""

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        super().__init__(options, tokenizer)
        if options.replay:
            replay = np.array(replayed_tokens(options, self.tokenizer), self.data.train.dtype)
            self.data = ReplayedData(**vars(self.data), replay=replay)
