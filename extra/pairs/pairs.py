"""A GPT that answers: it reads a source and a separator, and writes a translation or a summary up to an end token.

A pair becomes one text, as in "Ich bin Student. <to-en> I am a student. <end>", with two special tokens. Only the
answer is to be learned, so the loss counts only there; the source is read, never predicted:

    ids      Ich  bin  Student .       <to-en>  I   am  a        student  .
    targets  -    -    -       -       I        am  a   student  .        <end>

No mask is needed for the padding at the end of shorter rows: attention is causal, so nothing that counts sees it.

An encoder-decoder (seq2seq/model.py) has two stacks in place of this one: there a source token sees the whole source,
here only what precedes it, and the same heads attend to the source and to the answer.

Reference: Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences" (arXiv:1801.10198), section 4.2.3.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from extra.chat.conversations import chat_corpus
from extra.gpt.data import replayed_tokens
from extra.gpt.options import GPTOptions
from extra.pairs.answering import END, answer, turns_ids
from extra.pairs.made import CHAT, MADE
from extra.rewards.arithmetic import arithmetic_corpus
from extra.rewards.calculator import with_calculator, without_calls
from gpt.model import GPT
from text.tokenizers.base import UNKNOWN, Tokenizer
from tinygrad_lite.errors import OptionError
from tinygrad_lite.generator import pad_rows
from tinygrad_lite.random import keyed_rng
from tinygrad_lite.tensor import Tensor
from training.corpora.divided_pairs import PairCorpus, divide, read_table
from training.corpora.pairs import load_parallel
from training.pair_data import Batch, Pair, PairData
from training.pair_task import PairTask

IGNORED = -100  # the target that the loss ignores


def positions(pair: Pair) -> int:
    """The tokens that the model reads of a pair: all but <end>."""
    return len(pair[0]) + len(pair[1]) - 1


@dataclass
class AnswerData(PairData):
    """Pairs as rows of one text each; a target is between the separator and <end>.

    Attributes:
        replay: the tokens of a text, of which `windows` are learned in each epoch, at random places; they are the last
            rows of `train`, without a source.
    """

    replay: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    windows: int = 0

    def add_replay(self, tokens: list[int], share: float, size: int) -> None:
        """Learn windows of `size` tokens too: about this share of all tokens that are learned."""
        learned = sum(len(target) - 1 for _, target in self.train)
        self.replay, self.windows = np.array(tokens), math.ceil(learned * share / (1 - share) / size)
        self.train += [([], [0] * (size + 1))] * self.windows

    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of one pass over the training pairs, with new windows of the replayed text."""
        if self.windows and number != self._latest[0]:
            size = len(self.train[-1][1])
            starts = keyed_rng(self.seed, "replay", number).integers(0, len(self.replay) - size, self.windows)
            self.train[-self.windows :] = [([], self.replay[start : start + size].tolist()) for start in starts]
        return super().epoch(number)

    def widths(self, pair: Pair) -> tuple[int, ...]:
        """The length of the row."""
        return (positions(pair),)

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """ids and targets, both (B, T)."""
        ids = [[*source, *target[:-1]] for source, target in pairs]
        targets = [[IGNORED] * len(source) + target[1:] for source, target in pairs]
        arrays = pad_rows(ids, 0), pad_rows(targets, IGNORED)
        return tuple(Tensor(array, dtype=np.int64, device=self.device) for array in arrays)


class AnswerTask(PairTask):
    """Training pairs, held-out pairs, and answers to the held-out sources."""

    data_class, positions = AnswerData, staticmethod(positions)

    @staticmethod
    def marked(options: GPTOptions) -> tuple[PairCorpus, tuple[str, ...]]:
        """What is to be learned, and the special tokens that the targets begin and end with."""
        return load_pairs(options), (options.separator, END)

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        corpus, specials = self.marked(options)
        if tokenizer and (missing := [name for name in specials if name not in tokenizer.specials]):
            if not tokenizer.is_foreign and {*tokenizer.specials} - {UNKNOWN}:
                asked = "separator" if options.separator else "documents"
                raise OptionError(
                    f"--{asked} {getattr(options, asked)}: the tokenizer of these weights has no special token "
                    f"{missing[0]}, and has others; start from scratch, or from a run with the same {asked}"
                )
            tokenizer = tokenizer.with_specials(specials)
        super().__init__(options, corpus, tokenizer, specials, 3 if options.sample_tokens else 0)
        if options.replay:
            tokens = replayed_tokens(options, self.tokenizer)
            self.data.add_replay(tokens, options.replay_share, options.config.block_size)

    def describe(self) -> str:
        """One line about the pairs and their tokens."""
        windows = self.data.windows
        replayed = f"; of the pairs {windows:,} are windows of {self.options.replay}, new in each epoch"
        return super().describe() + (replayed if windows else "")

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Token ids; a source of several lines is a conversation."""
        separator, end = (self.tokenizer.specials[name] for name in (self.options.separator, END))
        sources = [turns_ids(self.tokenizer, source.split("\n")) for source, _ in pairs]
        targets = [[separator, *self.tokenizer.encode(target), end] for _, target in pairs]
        return list(zip(sources, targets, strict=True))

    def translate(self, model: GPT, sources: list[str]) -> list[str]:
        """The model's greedy answer to each source, without its calls to a calculator."""
        said = answer(with_calculator(model, self.tokenizer, self.options.dataset), self.tokenizer, sources)
        return [without_calls(text) for text in said]


def load_pairs(options: GPTOptions) -> PairCorpus:
    """The pairs that the options name, in the direction that they name.

    Raises: CorpusError if they cannot be read, or if there are too few; OptionError if there are fewer than
        --train_pairs.
    """
    settings = {"count": options.held_out, "swap": options.swap}
    if options.pairs:
        corpus = divide(Path(options.pairs).name, read_table(Path(options.pairs)), **settings)
    elif options.dataset == CHAT:
        corpus = chat_corpus(held_out=options.held_out)
    elif options.dataset in MADE:
        corpus = arithmetic_corpus(options.dataset, options.train_pairs or 20_000, options.held_out)
    else:
        found = load_parallel(options.dataset)
        corpus = divide(options.dataset, found.pairs, words=found.words, held_out=found.validation, **settings)
    return corpus.reduced(options.train_pairs, options.seed)
