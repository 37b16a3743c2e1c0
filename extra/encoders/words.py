"""BERT's pretraining task: predict hidden words of a text."""

import math
from collections.abc import Iterator

import numpy as np

from extra.encoders.bert import Bert, MaskedBatch
from extra.encoders.data import CLS, MASK, SEP, SPECIALS, MaskedSequence, MaskedText, TokenizedText
from extra.encoders.options import BertOptions
from extra.inside import numbers
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.decoding.scores import with_interval
from text.tokenizers import learn
from text.tokenizers.base import Tokenizer
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import CorpusError, counted
from tinygrad_lite.tensor import Tensor
from training.cli.console import is_plain
from training.corpora.texts import load_text
from training.family import Report


class WordsTask:
    """A training text, and the hidden words of its held-out part."""

    asked_with, predicted, unit = "start", "hidden token", ""

    def __init__(self, options: BertOptions, tokenizer: Tokenizer | None = None) -> None:
        self.options = options
        corpus = load_text(options.text, options.dataset)
        self.corpus_sha256, self.text = corpus.sha256, corpus.text
        train, held_out = corpus.split()
        self.tokenizer = tokenizer or learn_tokenizer(options, train)
        parts = [TokenizedText.encode(self.tokenizer, part) for part in (train, held_out)]
        if min(len(part.tokens) for part in parts) < options.block_size:
            found = f"{counted(len(parts[0].tokens), 'token')} to learn from and {len(parts[1].tokens):,} held out"
            needed = f"--block_size {options.block_size} needs at least as many of both"
            advice = "take a longer text, or a smaller --block_size"
            raise CorpusError(f"the text is too short: {found}, but {needed}: {advice}")
        self.data = MaskedText(self.tokenizer, *parts, options)
        self._latest: tuple[int, list[list[MaskedSequence]]] = -1, []
        self.held_out = self.data.validation_sequences()
        is_goethe = options.dataset.startswith("goethe") and not options.text
        self.example = "Der [MASK] ist ein Künstler." if is_goethe else example_of(held_out)

    def describe(self) -> str:
        """One line about the tokens."""
        data = self.data
        per_step = self.options.batch_size * self.options.gradient_accumulation_steps * self.options.block_size
        return (
            f"{self.tokenizer.kind} tokenizer with {self.tokenizer.vocab_size:,} tokens; {len(data.train.tokens):,} "
            f"tokens to learn from, {len(data.held_out.tokens):,} held out; an epoch is about "
            f"{counted(math.ceil(len(data.train.tokens) / per_step), 'step')}"
        )

    def unknown(self) -> dict[str, int]:
        """The characters or words of the text that the tokenizer does not know."""
        return self.tokenizer.unknown(self.text)

    def update(self, step: int) -> list[list[MaskedSequence]]:
        """The sequences of an update, a list for each micro-step; the latest are kept."""
        if step != self._latest[0]:
            self._latest = step, self.data.micro_batches(step)
        return self._latest[1]

    def target_tokens(self, step: int) -> int:
        """The number of hidden tokens of an update."""
        return sum(len(sequence.targets) for part in self.update(step) for sequence in part)

    def batches(self, step: int, rank: int = 0, size: int = 1) -> Iterator[tuple[MaskedBatch, float]]:
        """A process's sequences of the batches of one update, each with its share of the update's hidden tokens."""
        tokens = self.target_tokens(step)
        for part in self.update(step):
            if own := part[len(part) * rank // size : len(part) * (rank + 1) // size]:
                yield self.data.batch(own, part), sum(len(sequence.targets) for sequence in own) / tokens

    def validation_batches(self, rank: int = 0, size: int = 1) -> Iterator[tuple[MaskedBatch, int]]:
        """Sequences of the held-out text; with several processes, each has every n-th batch."""
        batch_size = self.options.batch_size
        for first in range(rank * batch_size, len(self.held_out), size * batch_size):
            batch = self.data.batch(self.held_out[first : first + batch_size], self.held_out)
            yield batch, len(batch.targets)

    def report(self, model: Bert, val_loss: float) -> Report:
        """How many of the hidden words are guessed correctly, and the guesses in a sentence."""
        right, asked, right_next, sequences = 0, 0, 0, len(self.held_out)
        for batch, count in self.validation_batches():
            x = model(batch.ids, batch.segments)
            right += int(are_guessed(model, x, batch).sum())
            asked += count
            if batch.follows is not None:
                logits = model.next_head(model.pooled(x, batch.ids)).numpy()
                right_next += int((logits.argmax(-1) == batch.follows.numpy()).sum())
        measures = {"accuracy": right / asked}
        words = f"{right / asked:.1%} of {counted(asked, 'hidden token')} guessed"
        if self.options.next_sentence:
            measures["next_accuracy"] = right_next / sequences
            words += f", and of {counted(sequences, 'second segment')} {with_interval(right_next, sequences)}"
        text = "\n".join(guesses(model, self.tokenizer, self.example, 3)) if self.example else ""
        return Report(measures, words, text)


def are_guessed(model: Bert, x: Tensor, batch: MaskedBatch) -> np.ndarray:
    """Whether the most probable token is right at each hidden position: (B, T, C) vectors of a batch -> (N,)."""
    rows = x.reshape(-1, model.config.n_embd)[batch.places]
    return model.words(rows).numpy().argmax(-1) == batch.targets.numpy()


def learn_tokenizer(options: BertOptions, text: str) -> Tokenizer:
    """The tokenizer that the options ask for, learned from the part of the text that is not held out."""
    if options.tokenizer == WordPieceTokenizer.kind:  # it has its own special tokens
        return WordPieceTokenizer.train(text, options.vocab_size, lowercase=options.lowercase)
    return learn(options.tokenizer, text, options.vocab_size, SPECIALS)


def example_of(text: str) -> str:
    """A short line of a text with one word hidden; empty if there is none.

    >>> example_of("Zweiter Teil\\n\\nEs irrt der Mensch, so lang er strebt.")
    'Es [MASK] der Mensch, so lang er strebt.'
    """
    for line in text.split("\n")[1:]:  # the first may be a part of one
        words = line.split()[:12]
        if len(words) >= 5 and words[0][0].isalpha() and is_plain(" ".join(words)):
            hidden = max(range(1, len(words) - 1), key=lambda n: (words[n].isalpha(), len(words[n])))
            return " ".join([*words[:hidden], MASK, *words[hidden + 1 :]])
    return ""


def whole_sequence(tokenizer: Tokenizer, text: str) -> np.ndarray:
    """The ids of a text in which each [MASK] hides a word: [CLS] text [SEP].

    In byte-pair encoding a word's token begins with the space before it, so [MASK] replaces that, too.
    """
    special = tokenizer.specials
    if tokenizer.kind == BPETokenizer.kind:
        text = text.replace(f" {MASK}", MASK)
    return np.array([special[CLS], *tokenizer.encode(text, allow_special=[MASK]), special[SEP]])


def predictions(model: Bert, tokenizer: Tokenizer, text: str, most: int) -> list[list[tuple[int, float]]]:
    """For each [MASK] in a text, the most probable tokens with their probabilities, best first."""
    special = tokenizer.specials
    ids = whole_sequence(tokenizer, text)[: model.config.block_size]
    places = np.flatnonzero(ids == special[MASK])
    with no_grad(), model.evaluating():
        x = model(Tensor(ids[None], device=model.device))
        logits = model.words(x[0][Tensor(places, device=x.device)])
        probabilities = numbers(logits.softmax()).copy()
    probabilities[:, list(special.values())] = 0  # a special token is not a word
    best = [np.argsort(-row, kind="stable")[:most].tolist() for row in probabilities]
    return [[(token, float(row[token])) for token in tokens] for row, tokens in zip(probabilities, best, strict=True)]


def guesses(model: Bert, tokenizer: Tokenizer, text: str, most: int) -> list[str]:
    """A text, and below it for each [MASK] the most probable words, as lines."""
    lines = [text]
    for found in predictions(model, tokenizer, text, most):
        lines.append("  " + ", ".join(f"{tokenizer.render(token).strip()} {p:.1%}" for token, p in found))
    return lines
