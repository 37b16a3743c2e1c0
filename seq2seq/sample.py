"""`sample.py` with a translation model: translate a sentence, a file, stdin, or lines as they are typed.

Each line is a sentence and produces a line on stdout; an empty line produces an empty line.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from extra.inside.seq2seq import PARTS, attention_weights
from seq2seq.model import Seq2Seq
from seq2seq.translate import draw, penalty_of, translate
from text.decoding.sample_options import refuse_others
from text.decoding.sampling import RANDOM, REPETITION
from text.tokenizers.base import Tokenizer
from tinygrad_lite.errors import OptionError
from training.cli.console import say, typed_lines, write
from training.cli.prompt import prompt_lines, read_prompt, warn_of_cut, warn_of_unknown
from training.corpora.cleaning import normalise
from training.family import Trained

# Options that make a translation a random sample.
SAMPLING = {*RANDOM, *REPETITION, "seed", "num_samples"}
KNOWN = SAMPLING | {*"start beam n_best length_penalty greedy interactive attention explain".split()}
KNOWN |= {*"adapter out_dir device quantize".split()}


def speak(options: Any, given: Mapping[str, Any], trained: Trained, model: Seq2Seq) -> None:
    """Translate each line of a text, or, with --interactive, each line that is typed; or write the page of --explain.

    The translation is found by greedy or beam search, unless an option of SAMPLING is given.

    Raises: OptionError if the options do not apply to translations, or cannot be used together.
    """
    if "score" in given:
        raise OptionError(
            "--score is for models that continue a text: python -m extra.studies.scores scores translations"
        )
    refuse_others(given, KNOWN, "is for models that continue a text; a translation takes")
    if not given.keys() & {"start", "interactive"}:
        raise OptionError('give a sentence: --start "Der Mann liest ein Buch.", --start - for stdin, or --interactive')
    others = [f"--{name}" for name in sorted(SAMPLING) if name in given]
    if options.attention and others:
        raise OptionError(f"--attention plots the best translation, so omit {others[0]}")
    tokenizer = trained.tokenizer
    text = "" if options.interactive else tokenizer.prepare(read_prompt(options.start))
    warn_of_unknown(tokenizer, text.replace("\n", ""))
    if options.explain:
        from extra.explorer.translation import explain

        explain(options, given, trained, model, text)
        return
    write_lines = sample_lines if SAMPLING & set(given) else search_lines
    if not options.interactive:
        lines = prompt_lines(text)
        write_lines(options, model, tokenizer, lines)
        if options.attention:
            sentence = only_sentence(lines, "--attention")
            settings = {"beam": max(1, options.beam), "length_penalty": options.length_penalty}
            ((best,),) = translate(model, tokenizer, [sentence], **settings)
            from extra.plots.attention import plot_attention

            found = attention_weights(model, tokenizer, sentence, best.tokens)
            plot_attention(found, PARTS["cross"], Path(options.attention))
        return
    say("type a sentence; an empty line or the end of the input ends")
    for line in typed_lines():
        sentence = normalise(line).rstrip("\n")
        if not sentence:
            return
        write_lines(options, model, tokenizer, [sentence])


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


def only_sentence(lines: Sequence[str], option: str) -> str:
    """The sentence of a single line, with single spaces between its words.

    Raises: OptionError that names the option if there is not exactly one line, or if it is empty.
    """
    sentences = [" ".join(line.split()) for line in lines]
    if len(sentences) != 1 or not sentences[0]:
        raise OptionError(f"{option} needs exactly one line, with a sentence; lines given: {len(sentences)}")
    return sentences[0]
