"""The task of masked diffusion: the GPT's text and tokens, of which some are hidden instead of the next one predicted.

A row is a window of T tokens, the first of which is given, as it is to the GPT. The shares of hidden tokens are spread
evenly over the rows of an update ("antithetic"): u, u + 1/B, u + 2/B, ... modulo 1 with one random u, and then from
[0, 1) to [e, 1). With e = 0 the loss is the bound. But a row with few hidden tokens has a noisy mean, and counts as
much as any other; without such rows, a small model finds sooner what the neighbours of a <mask> are good for. (Arriola
et al. 2025, arXiv:2503.09573, cut the range of shares at both ends.)

The held-out text is cut into such windows, and each token but the first is hidden in one of them, as each is a target
of the GPT once; so bits per character are comparable, but here they are a bound: the model may be better than that.
Each window is read with several sets of hidden tokens of all sizes, always the same ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from extra.diffusion.fill import write
from extra.diffusion.model import MASK, Diffusion, HiddenBatch, hidden_sets, hide
from extra.options import ShelfOptions, ShelfSampleOptions
from gpt.data import TextData, prepare
from gpt.options import GPTOptions, of_evaluation, of_training
from gpt.task import TextTask
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import OptionError
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.transformer import POSITIONS
from training.task import Report

GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 are spread evenly, however many there are


@dataclass
class DiffusionOptions(ShelfOptions, GPTOptions):
    """The options of `train.py` for masked diffusion: those of the core's GPT."""

    hidden_from: float = of_training(0.3, "smallest share of hidden tokens to learn from", low=0.0, below=1.0)
    eval_masks: int = of_evaluation(4, "sets of hidden tokens to evaluate each window with", unit="sets", low=1)

    def check(self) -> None:
        """Refuse what cannot be computed. Raises: OptionError."""
        super().check()
        if POSITIONS.get(self.config.positions):
            raise OptionError(f"--positions {self.config.positions} only looks back, and here both sides are seen")
        if self.config.block_size < 2:
            raise OptionError("--block_size 1: the first token of a window is given, so it needs another one")


class HiddenText(TextData):
    """A tokenized text whose held-out windows overlap by one token, the one that is given."""

    @property
    def apart(self) -> int:
        """How far apart the windows of the held-out text begin."""
        return self.options.config.block_size - 1


def prepare_hidden(options: DiffusionOptions, tokenizer: Tokenizer | None = None) -> HiddenText:
    """The text as the GPT reads it, and a tokenizer that also has <mask>, as its last token."""
    data = prepare(options, tokenizer)
    return HiddenText(**vars(data) | {"tokenizer": data.tokenizer.with_specials([MASK])})


class DiffusionTask(TextTask):
    """A training text with hidden tokens, its held-out part, and texts by the model."""

    prepare = staticmethod(prepare_hidden)

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[HiddenBatch, float]]:
        """A process's rows of the batches of one update, each with its share of the update's rows."""
        options, rng = self.options, keyed_rng(self.options.seed, "hidden", step)
        tokens, _ = self.data.batch(step, options.batch_size * options.gradient_accumulation_steps)
        evenly = rng.permutation((rng.random() + np.arange(len(tokens)) / len(tokens)) % 1)
        sets = hidden_sets(options.hidden_from + (1 - options.hidden_from) * evenly, tokens.shape[1], rng)
        for rows in np.split(np.arange(len(tokens)), options.gradient_accumulation_steps):
            own = rows[len(rows) * rank // size : len(rows) * (rank + 1) // size]
            yield hide(tokens[own], sets[own], self.tokenizer.vocab_size - 1, options.device), len(own) / len(tokens)

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[HiddenBatch, int]]:
        """The held-out text in windows, each several times; with several processes, each has every n-th batch."""
        options = self.options
        for number, (ids, targets) in enumerate(self.data.validation_batches(options.batch_size, options.eval_iters)):
            tokens = np.concatenate((ids.numpy()[:, :1], targets.numpy()), axis=1)[:, : options.config.block_size]
            evenly = (number * options.batch_size + np.arange(len(tokens))) * GOLDEN
            for part in range(options.eval_masks):
                rng = keyed_rng(options.seed, "held-out", number, part)
                sets = hidden_sets((evenly + part / options.eval_masks) % 1, tokens.shape[1], rng)
                if (number * options.eval_masks + part) % size == rank:
                    yield hide(tokens, sets, self.tokenizer.vocab_size - 1, options.device), tokens[:, 1:].size

    def report(self, model: Diffusion, val_loss: float) -> Report:
        """The bound in bits per character, and a sample."""
        report = super().report(model, val_loss)
        return report._replace(words=f"a bound: at most {report.words}")

    def sample(self, model: Diffusion) -> str:
        """A short text by the current model, after a line break; always with the same random numbers."""
        prompt = np.array([self.tokenizer.encode("\n") or [0]])
        settings = ShelfSampleOptions(seed=self.options.seed)
        (tokens,), _ = write(model, prompt, self.options.sample_tokens, settings, self.tokenizer.textless)
        return self.tokenizer.decode(tokens).encode("utf-8", "replace").decode("utf-8").strip()
