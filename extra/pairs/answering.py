"""What a GPT that learned from pairs (pairs.py) answers to a source, for evaluations and for sample.py."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from extra.pairs.made import CHAT
from extra.pretrained.read import end_tokens, is_pretrained_folder
from extra.tokenizers.huggingface import GPT2_SPECIAL as MARK
from gpt.model import GPT
from gpt.sample import encode
from text.decoding.batches import search_in_batches
from text.decoding.sample_options import LENGTH_PENALTY, SAMPLING, SampleOptions
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import OptionError
from training.cli.prompt import warn_of_cut
from training.corpora.cleaning import one_line
from training.family import Trained

END = "<end>"
MIN_ANSWER = 32  # tokens of the context kept free for the answer, however long the source is


def separator_of(tokenizer: Tokenizer) -> str:
    """The separator of a model that answers, the token before <end>; empty if it learned from a text."""
    before = tokenizer.specials.get(END, 0) - 1
    return next((name for name, token in tokenizer.specials.items() if token == before), "")


def is_answering(trained: Trained) -> bool:
    """Whether a model learned to answer here. Those of other programs do not, even if they have a token <end>."""
    by_others = trained.adapter is None and is_pretrained_folder(trained.path)
    return bool(separator_of(trained.tokenizer)) and not by_others


def is_conversing(trained: Trained) -> bool:
    """Whether a model learned from this project's conversations."""
    return trained.dataset == CHAT and is_answering(trained)


def ends_of(trained: Trained) -> set[int]:
    """The tokens that end a text: those of another program's model, <end> of a model that answers, or a mark."""
    tokenizer = trained.tokenizer
    if is_answering(trained):
        return {tokenizer.specials[END]}
    if trained.documents:  # a line break cannot be in a line
        return {tokenizer.specials[MARK], *(tokenizer.encode("\n") if trained.documents == "line" else ())}
    by_others = tokenizer.is_foreign and is_pretrained_folder(trained.path)
    return end_tokens(trained.path, tokenizer.vocab_size) if by_others else set()


def prompt_of(trained: Trained, text: str) -> list[int]:
    """The tokens of a text to be continued, or of the beginning of a document, which has a mark before it."""
    tokenizer = trained.tokenizer
    return [tokenizer.specials[MARK], *tokenizer.encode_after(text)] if trained.documents else encode(tokenizer, text)


def turns_ids(tokenizer: Tokenizer, turns: Sequence[str]) -> list[int]:
    """The tokens of a conversation whose turns alternate, ending with the one to be answered.

    "Hi! <answer> Hello! <end> Who are you?" has three turns.
    """
    marks, ids = (tokenizer.specials[separator_of(tokenizer)], tokenizer.specials[END]), []
    for number, turn in enumerate(turns):
        ids += [*([marks[(number - 1) % 2]] if number else []), *tokenizer.encode(turn)]
    return ids


def room_for(block_size: int) -> int:
    """The tokens that a source may have, so that MIN_ANSWER remain for the answer."""
    return max(1, block_size - 1 - min(MIN_ANSWER, block_size // 2))


def source_ids(tokenizer: Tokenizer, turns: Sequence[str], block_size: int) -> list[int]:
    """The tokens of a source and the separator. Where there is no room, old turns are dropped, and the source is cut.

    Args:
        turns: the source, after the preceding turns of both sides. All of it is text, even the name of the separator.
    """
    *earlier, source = turns
    while len(ids := turns_ids(tokenizer, [*earlier, one_line(source)])) > room_for(block_size) and earlier:
        earlier = earlier[2:]
    return [*ids[: room_for(block_size)], tokenizer.specials[separator_of(tokenizer)]]


def prompt_ids(tokenizer: Tokenizer, text: str, block_size: int, earlier: Sequence[str] = ()) -> list[int]:
    """The tokens of `source_ids`, and of the beginning of an answer if the text has one after a separator."""
    source, _, begun = text.partition(separator_of(tokenizer))
    return [*source_ids(tokenizer, [*earlier, source], block_size), *tokenizer.encode(begun.strip())]


def warn_of_long(tokenizer: Tokenizer, sources: Sequence[str], block_size: int) -> None:
    """Say which sources are cut."""
    lengths = (len(tokenizer.encode(one_line(source))) for source in sources)
    warn_of_cut(lengths, room_for(block_size), unit="source")


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
    """The best answer to each source found by beam search; with a beam of 1 the search is greedy.

    The lines of a source are the turns of a conversation.
    """
    block_size, end = model.config.block_size, tokenizer.specials[END]
    prompts = [source_ids(tokenizer, source.split("\n"), block_size) for source in sources]
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
) -> tuple[SampleOptions, str, list[int]]:
    """For a prompt of sample.py with a separator, which may be omitted: the options, the prompt, and its tokens.

    Unless options say otherwise, answers are found greedily and are at most as long as `longest_answer`.

    Raises: OptionError if there is no source, or if an option is for continuing texts.
    """
    separator = separator_of(tokenizer)
    if "interactive" in given:
        raise OptionError('--interactive is for models that continue a text; this one answers: --start "a text"')
    source, _, begun = text.partition(separator)
    if not source.strip():
        raise OptionError(f'give the text before {separator}: --start "a text"')
    if not {*SAMPLING} & {*given}:
        options = replace(options, greedy=True)
    warn_of_long(tokenizer, [source], block_size)
    ids = prompt_ids(tokenizer, text, block_size)
    if "max_new_tokens" not in given:
        options = replace(options, max_new_tokens=longest_answer(len(ids), block_size))
    return options, f"{one_line(source)} {separator} {begun.strip()}".rstrip() + " ", ids
