"""The GPT's training task: predict a text token by token, and generate samples at evaluations."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from gpt.data import Batch, bits_per_character, prepare
from gpt.model import GPT
from gpt.options import GPTOptions
from text.decoding.sampling import generate
from text.tokenizers.base import UNKNOWN, Tokenizer
from tinygrad_lite.errors import counted
from training.cli.console import is_plain
from training.task import Report, Task


class TextTask(Task):
    """A training text, its held-out part, and samples by the model."""

    unit, measures = "character", ("bits_per_char",)

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        self.data = self.prepare(options, tokenizer)
        corpus = self.data.corpus
        self.tokenizer, self.corpus_sha256, self.text = self.data.tokenizer, corpus.sha256, corpus.text
        self.example = corpus.prompt or (first_words(corpus.text) if corpus.text else "test:0")

    prepare = staticmethod(prepare)

    def describe(self) -> str:
        """One line about the tokens."""
        data = self.data
        epoch = math.ceil(len(data.train) / self.target_tokens(0))
        unknown = float(np.mean(data.held_out == data.tokenizer.specials.get(UNKNOWN, -1)))
        lost = f" ({unknown:.1%} of those held out are {UNKNOWN}: their text is lost, and easy to predict)"
        return (
            f"{data.tokenizer.kind} tokenizer with {counted(data.tokenizer.vocab_size, 'token')}, "
            f"{data.chars_per_token:.2f} characters each; {counted(len(data.train), 'token')} to learn from, "
            f"{len(data.held_out):,} held out{lost if unknown else ''}; an epoch is {counted(epoch, 'step')}"
        )

    def target_tokens(self, step: int) -> int:
        """The number of target tokens of an update."""
        options = self.options
        return options.batch_size * options.gradient_accumulation_steps * options.config.block_size

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        """A process's rows of the batches of one update, each with its share of the update's tokens."""
        options, tokens = self.options, self.target_tokens(step)
        for ids, targets in self.data.micro_batches(step, options.batch_size, options.gradient_accumulation_steps):
            rows = len(ids)
            own = slice(rows * rank // size, rows * (rank + 1) // size)
            yield (ids[own], targets[own]), targets[own].numel() / tokens

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, int]]:
        """The held-out text in windows; with several processes, each has every n-th batch."""
        batches = self.data.validation_batches(self.options.batch_size, self.options.eval_iters)
        for batch in itertools.islice(batches, rank, None, size):
            yield batch, batch[1].numel()

    def report(self, model: GPT, val_loss: float) -> Report:
        """The loss in bits per character or pixel, and a sample."""
        bits = bits_per_character(val_loss, self.data.chars_per_token)
        text = self.sample(model) if self.options.sample_tokens else ""
        return Report({"bits_per_char": bits}, f"{bits:.3f} bits per {self.unit}", text)

    def sample(self, model: GPT) -> str:
        """A short text by the current model; always with the same random numbers, so that samples are comparable."""
        return drawn(self.options, self.tokenizer, model, [self.tokenizer.encode_whole("\n") or [0]])[0]


def drawn(
    options: GPTOptions, tokenizer: Tokenizer, model: GPT, prompts: list[list[int]], end: int | None = None
) -> list[str]:
    """How a model continues each of these tokens, up to the token `end`."""
    settings = {"max_new_tokens": options.sample_tokens, "temperature": 0.8, "seed": options.seed}
    forbidden = {*tokenizer.textless} - {end}
    tokens = generate(model.step, *model.start(prompts), stop_token=end, forbidden=forbidden, **settings)
    rows = np.stack([row.copy() for row in tokens], axis=1)
    return [tokenizer.decode(row).encode("utf-8", "replace").decode("utf-8").strip() for row in rows]


def first_words(text: str) -> str:
    r"""The first words of the first suitable line of a text, as an example of a prompt; empty if there is none.

    >>> first_words("* * *\n\nEs irrt der Mensch, so lang er strebt.")
    'Es irrt der'
    """
    lines = (" ".join(line.split()[:3])[:40] for line in text.split("\n"))
    return next((line for line in lines if line[:1].isalpha() and is_plain(line)), "")
