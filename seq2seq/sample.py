"""`sample.py` with a translation model: translate a sentence, a file, or stdin.

Each line is a sentence and produces a line on stdout; an empty line produces an empty line.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seq2seq.model import Seq2Seq
from seq2seq.translate import draw, penalty_of, translate
from text.decoding.sample_options import refuse_others
from text.decoding.sampling import RANDOM, REPETITION
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import OptionError
from training.cli.console import say, write
from training.cli.prompt import prompt_lines, read_prompt, warn_of_cut, warn_of_unknown
from training.family import Trained

# Options that make a translation a random sample.
SAMPLING = {*RANDOM, *REPETITION, "seed", "num_samples"}
KNOWN = SAMPLING | {*"start beam n_best length_penalty greedy out_dir device".split()}
SCORES = "--score is for models that continue a text"


def sample(options: Any, given: Mapping[str, Any], trained: Trained, model: Seq2Seq) -> None:
    """Translate each line of a text, by greedy or beam search, or at random if an option of SAMPLING is given.

    Raises: OptionError if the options do not apply to translations.
    """
    if "score" in given:
        raise OptionError(SCORES)
    refuse_others(given, KNOWN, "is for models that continue a text; a translation takes")
    if "start" not in given:
        raise OptionError('give a sentence: --start "Der Mann liest ein Buch.", or --start - for stdin')
    lines_writer(given)(options, model, trained.tokenizer, prompt_lines(text_to_translate(options, trained)))


def text_to_translate(options: Any, trained: Trained) -> str:
    """The prompt, as the tokenizer reads it, with a warning of what it does not know."""
    text = trained.tokenizer.prepare(read_prompt(options.start))
    warn_of_unknown(trained.tokenizer, text.replace("\n", ""))
    return text


def lines_writer(given: Mapping[str, Any]) -> Callable[[Any, Seq2Seq, Tokenizer, Sequence[str]], None]:
    """What translates lines: a search, or a random sample."""
    return sample_lines if SAMPLING & set(given) else search_lines


def sample_lines(options: Any, model: Seq2Seq, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Write num_samples random translations of each line."""
    for number, sentence in enumerate(sentences_in(lines, model, tokenizer)):
        found = draw(model, tokenizer, sentence, first_row=number * options.num_samples, sampling=options.sampling())
        for text in itertools.islice(found, options.num_samples):
            write(text.replace("\n", " ") + "\n")


def search_lines(options: Any, model: Seq2Seq, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Write the best translation of each line, or the n_best, with their scores on stderr."""
    sentences = sentences_in(lines, model, tokenizer)
    penalty = penalty_of(model, options.length_penalty)
    settings = {"beam": max(1, options.beam), "n_best": options.n_best, "length_penalty": penalty}
    for hypotheses in translate(model, tokenizer, sentences, **settings):
        for rank, one in enumerate(hypotheses, start=1):
            if options.n_best > 1:
                say(f"--- {rank}: {one.describe(penalty)}")
            write(one.text.replace("\n", " ") + "\n")


def sentences_in(lines: Sequence[str], model: Seq2Seq, tokenizer: Tokenizer) -> list[str]:
    """The lines with single spaces between their words, and a warning if the model cannot read all of them."""
    sentences = [" ".join(line.split()) for line in lines]
    warn_of_cut((len(tokenizer.encode(sentence)) for sentence in sentences), model.config.block_size)
    return sentences
