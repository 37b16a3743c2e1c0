"""The training task of models that learn from pairs: learn from some, and answer the held-out ones at evaluations.

The encoder-decoder translates (seq2seq/task.py); a GPT translates or summarises (extra/pairs/pairs.py).
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from text.decoding.scores import scores
from text.tokenizers import learn
from text.tokenizers.base import UNKNOWN, Tokenizer
from tinygrad_lite.errors import CorpusError, counted
from training.cli.console import is_plain
from training.corpora.divided_pairs import PairCorpus
from training.pair_data import Batch, Pair, PairData
from training.task import Report, Task

TOO_HIGH = 0.9  # as a share of the loss of guessing: above it, nothing is translated


class PairTask(Task):
    """Training pairs, held-out pairs, and the model's translations of held-out sources.

    Args:
        corpus: the pairs.
        tokenizer: None to learn one from both sides of the training pairs.
        specials: the special tokens of a learned one.
        shown: the number of translations to show at each evaluation.

    A subclass for a model says how pairs of texts become token ids, `encode(pairs)`, how many positions of its context
    a pair takes, `positions(pair)`, and what its greedy translation of each source is, `translate(model, sources)`.
    """

    item, measures = "pair", ("bleu", "chrf", "exact")
    data_class: ClassVar[type[PairData]]

    def __init__(
        self, options: Any, corpus: PairCorpus, tokenizer: Tokenizer | None, specials: Sequence[str], shown: int
    ) -> None:
        self.options, self.corpus, self.shown = options, corpus, shown
        self.corpus_sha256 = corpus.sha256
        if tokenizer is None:  # a single one, learned from both sides
            text = "".join(f"{source}\n{target}\n" for source, target in corpus.train)
            tokenizer = learn(options.tokenizer, text, options.vocab_size, specials)
        self.tokenizer = tokenizer
        train, held_out = map(self.encode, (corpus.train, corpus.held_out))
        needed = max(min(map(self.positions, part)) for part in (train, held_out))
        if needed > options.config.block_size:
            advice = f"use {needed} or more, so that at least one training {self.item} and one held-out {self.item} fit"
            raise CorpusError(f"--block_size {options.config.block_size} is too short for {corpus.name}: {advice}")

        def fits(pair: Pair) -> bool:
            return self.positions(pair) <= options.config.block_size

        self.too_long = sum(not fits(pair) for pair in (*train, *held_out))
        self.sentences = [pair for pair, ids in zip(corpus.held_out, held_out, strict=True) if fits(ids)]
        train, held_out = (list(filter(fits, part)) for part in (train, held_out))
        steps, batch_tokens = options.gradient_accumulation_steps, math.prod(n for n, _ in options.factors())
        self.example = next((source for source, _ in self.sentences if is_plain(source)), "")
        self.data = self.data_class(self.tokenizer, train, held_out, batch_tokens, steps, options.seed, options.device)

    def describe(self) -> str:
        """One line about the pairs and their tokens."""
        data, reasons = self.data, self.corpus.left_out.copy()
        found = f"{counted(len(data.train), self.item)} to learn from, {len(data.held_out):,} held out"
        if self.too_long:
            reasons.append(f"{self.too_long:,} with more than {counted(self.options.config.block_size, 'token')}")
        left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
        tokens = [token for source, target in data.held_out for token in (*source, *target[1:-1])]
        unknown = tokens.count(self.tokenizer.specials.get(UNKNOWN, -1)) / max(1, len(tokens))
        lost = f" ({unknown:.1%} of those held out are {UNKNOWN})" if unknown else ""
        return (
            f"{self.corpus.name}: {found}{left_out}; "
            f"{self.tokenizer.kind} tokenizer with {counted(self.tokenizer.vocab_size, 'token')}{lost}; "
            f"{data.padding():.1%} of the batches is padding; an epoch is {counted(data.epoch_steps, 'step')}"
        )

    def unknown(self) -> dict[str, int]:
        """The characters or words that the tokenizer does not know."""
        counts: Counter[str] = Counter()
        for sentence in itertools.chain.from_iterable(self.corpus.train):
            counts.update(self.tokenizer.unknown(sentence))  # of one: its last word and the next one's first are two
        return counts

    def target_tokens(self, step: int) -> int:
        """The number of target tokens of an update."""
        return self.data.target_tokens(step)

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, float]]:
        """A process's pairs of the batches of one update, each with its share of the update's target tokens."""
        tokens = self.target_tokens(step)
        return ((batch, count / tokens) for batch, count in self.data.micro_batches(step, rank, size))

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[Batch, int]]:
        """All held-out pairs; with several processes, each has every n-th batch."""
        return itertools.islice(self.data.validation_batches(), rank, None, size)

    def report(self, model: Any, val_loss: float) -> Report:
        """The scores of greedy translations of some held-out sentences, and a few of the translations.

        Early in training nothing is translated: such a model does not know when to stop, and translating would take
        minutes. The loss of guessing is ln V.
        """
        sentences = self.sentences[: self.options.eval_pairs]
        if not sentences or val_loss > TOO_HIGH * math.log(self.tokenizer.vocab_size):
            return Report({}, "too early to translate" if sentences else "not translated", "")
        written = self.translate(model, [source for source, _ in sentences])
        measures, words = scores(written, [target for _, target in sentences])
        shown = zip(sentences[: self.shown], written, strict=False)
        text = "\n".join(f"{source}\n  -> {translation}\n  == {target}" for (source, target), translation in shown)
        return Report(measures, words, text)
