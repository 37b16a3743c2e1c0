"""A GPT that answers: it reads a source and a separator, and writes a translation or a summary to its end token.

A pair becomes one text, as in "Ich bin Student. <to-en> I am a student. <end>", with two special tokens. What is to be
learned is the answer, so the loss counts only there; the source is read, never guessed:

    ids      Ich  bin  Student .       <to-en>  I   am  a        student  .
    targets  -    -    -       -       I        am  a   student  .        <end>

No mask is needed for the padding at the end of shorter rows: attention is causal, so nothing that counts sees it.

An encoder-decoder (seq2seq/model.py) has two stacks for what is one here: a source token sees the whole source there,
here only what stands before it, and attention over the source and over the answer share their heads.

Reference: Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences" (arXiv:1801.10198), section 4.2.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from gpt.model import GPT
from gpt.options import GPTOptions
from tinygrad_lite.corpora.divided_pairs import PairCorpus, divide, read_table
from tinygrad_lite.corpora.pair_cleaning import one_line
from tinygrad_lite.corpora.pairs import load_parallel
from tinygrad_lite.decoding.batches import search_in_batches
from tinygrad_lite.decoding.sample_options import LENGTH_PENALTY, SAMPLING, SampleOptions
from tinygrad_lite.decoding.state import pad_rows
from tinygrad_lite.errors import OptionError
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.tokenizers.base import UNKNOWN, Tokenizer
from tinygrad_lite.training.pair_data import Batch, Pair, PairData
from tinygrad_lite.training.pair_task import PairTask

END = "<end>"
IGNORED = -100  # the target that the loss does not count
MIN_ANSWER = 32  # tokens of the context that are free for an answer, however long the source is


class AnswerData(PairData):
    """Pairs as rows of one text each; a target stands between the separator and <end>."""

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

    data_class = AnswerData

    def __init__(self, options: GPTOptions, tokenizer: Tokenizer | None = None) -> None:
        specials = (options.separator, END)
        if tokenizer and (missing := [name for name in specials if name not in tokenizer.specials]):
            raise OptionError(
                f"--separator {options.separator}: the tokenizer of these weights has no special token {missing[0]}; "
                "start from scratch, or from a run with the same separator"
            )
        super().__init__(
            options,
            load_pairs(options),
            tokenizer,
            specials=specials,
            ends=specials,
            batch_tokens=options.batch_tokens,
            shown=3 if options.sample_tokens else 0,
        )

    def positions(self, pair: Pair) -> int:
        """The length of the row."""
        return positions(pair)

    def translate(self, model: GPT, sources: list[str]) -> list[str]:
        """The model's greedy answer to each source."""
        return answer(model, self.tokenizer, sources)


def positions(pair: Pair) -> int:
    """The tokens that the model reads of a pair: all but <end>."""
    return len(pair[0]) + len(pair[1]) - 1


def load_pairs(options: GPTOptions) -> PairCorpus:
    """The pairs that the options name, in the direction that they name.

    Raises: CorpusError if they cannot be read, or if there are too few.
    """
    settings = {"count": options.held_out, "swap": options.swap}
    if options.pairs:
        return divide(Path(options.pairs).name, read_table(Path(options.pairs)), **settings)
    found = load_parallel(options.dataset)
    return divide(found.name, found.pairs, words=found.words, held_out=found.validation, **settings)


# --- answers ----------------------------------------------------------------------------------------------------


def separator_of(tokenizer: Tokenizer) -> str:
    """The separator of a model that answers; empty if its tokenizer shows that it learned from a text."""
    names = [name for name in tokenizer.specials if name not in (END, UNKNOWN)]
    return names[0] if END in tokenizer.specials and len(names) == 1 else ""


def end_of(tokenizer: Tokenizer) -> int | None:
    """The id of the token that ends an answer; None for a model that learned from a text."""
    return tokenizer.specials[END] if separator_of(tokenizer) else None


def prompt_ids(tokenizer: Tokenizer, text: str, block_size: int) -> list[int]:
    """The tokens of a source, the separator, and the beginning of an answer if the text has one behind a separator.

    A source that leaves less than MIN_ANSWER tokens of the context to the answer is cut.
    """
    separator = separator_of(tokenizer)
    source, _, begun = text.partition(separator)
    room = max(1, block_size - 1 - min(MIN_ANSWER, block_size // 2))
    ids = tokenizer.encode(one_line(source))[:room]
    return [*ids, tokenizer.specials[separator], *tokenizer.encode(begun.strip())]


def longest_answer(prompt_tokens: int, block_size: int) -> int:
    """The maximum length of an answer in tokens: one and a half times the prompt, plus a margin, if there is room.

    The prompt's length is rounded up to a multiple of eight, so that prompts of similar length can share a batch.

    >>> longest_answer(1, 256), longest_answer(10, 256), longest_answer(224, 256), longest_answer(300, 256)
    (28, 40, 33, 1)
    """
    tokens = 8 * -(-prompt_tokens // 8)
    return max(1, min(16 + 3 * tokens // 2, block_size - tokens + 1))


def answer(
    model: GPT, tokenizer: Tokenizer, sources: Sequence[str], beam: int = 1, length_penalty: float = LENGTH_PENALTY
) -> list[str]:
    """The best answer to each source that a beam search finds; with a beam of 1 it is greedy."""
    block_size, end = model.config.block_size, end_of(tokenizer)
    prompts = [prompt_ids(tokenizer, source, block_size) for source in sources]
    found = search_in_batches(
        model,
        prompts,
        [longest_answer(len(prompt), block_size) for prompt in prompts],
        beam=beam,
        length_penalty=length_penalty,
        stop_token=end,
        forbidden=[token for token in tokenizer.textless if token != end],
    )
    return [tokenizer.decode(best.tokens).strip() for best, *_ in found]


def prepare_prompt(
    options: SampleOptions, given: Collection[str], tokenizer: Tokenizer, text: str, block_size: int
) -> tuple[str, list[int]]:
    """The prompt of sample.py with a separator, which may be omitted, and its tokens.

    Unless options say otherwise, answers are found greedily and are at most as long as `longest_answer`.

    Raises: OptionError if there is no source, or for an option that continues texts.
    """
    separator = separator_of(tokenizer)
    if other := [name for name in ("interactive", "chat", "explain") if name in given]:
        raise OptionError(f'--{other[0]} is for models that continue a text; this one answers: --start "a text"')
    source, _, begun = text.partition(separator)
    if not source.strip():
        raise OptionError(f'give the text that stands before {separator}: --start "a text"')
    if not {*SAMPLING} & {*given}:
        options.greedy = True
    ids = prompt_ids(tokenizer, text, block_size)
    if "max_new_tokens" not in given:
        options.max_new_tokens = longest_answer(len(ids), block_size)
    begun = f"{begun.strip()} " if begun.strip() else ""
    return f"{one_line(source)} {separator} {begun}", ids
