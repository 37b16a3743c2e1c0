"""`sample.py` with a translation model in all its ways: typed lines, a plot, the page, or as the core."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extra.chat.interactive import typed_lines
from extra.explorer.translation import explain, only_sentence
from extra.inside.seq2seq import PARTS, attention_weights
from extra.plots.attention import plot_attention
from seq2seq import sample as core
from seq2seq.model import Seq2Seq
from seq2seq.sample import SAMPLING, SCORES, lines_writer, text_to_translate
from seq2seq.translate import translate
from text.decoding.sample_options import refuse_others
from tinygrad_lite.errors import OptionError
from training.cli.console import say
from training.cli.prompt import prompt_lines
from training.corpora.cleaning import normalise
from training.family import Trained

KNOWN = core.KNOWN | {*"interactive attention explain adapter quantize".split()}


def sample(options: Any, given: Mapping[str, Any], trained: Trained, model: Seq2Seq) -> None:
    """Translate each line of a text, or, with --interactive, each line that is typed; or write the page of --explain.

    Raises: OptionError if the options do not apply to translations, or cannot be used together.
    """
    if "score" in given:
        raise OptionError(f"{SCORES}: python -m extra.studies.scores scores translations")
    refuse_others(given, KNOWN, "is for models that continue a text; a translation takes")
    if not given.keys() & {"start", "interactive"}:
        raise OptionError('give a sentence: --start "Der Mann liest ein Buch.", --start - for stdin, or --interactive')
    if options.interactive and "start" in given:
        raise OptionError("--start changes nothing with --interactive, which reads what is typed: omit it")
    others = [f"--{name}" for name in sorted(SAMPLING) if name in given]
    if options.attention and others:
        raise OptionError(f"--attention plots the best translation, so omit {others[0]}")
    tokenizer, write_lines = trained.tokenizer, lines_writer(given)
    text = "" if options.interactive else text_to_translate(options, trained)
    if options.explain:
        explain(options, given, trained, model, text)
    elif not options.interactive:
        lines = prompt_lines(text)
        write_lines(options, model, tokenizer, lines)
        if options.attention:
            sentence = only_sentence(lines, "--attention")
            settings = {"beam": max(1, options.beam), "length_penalty": options.length_penalty}
            ((best,),) = translate(model, tokenizer, [sentence], **settings)
            found = attention_weights(model, tokenizer, sentence, best.tokens)
            plot_attention(found, PARTS["cross"], Path(options.attention))
    else:
        say("type a sentence; an empty line or the end of the input ends")
        for line in typed_lines():
            if not (sentence := normalise(line).rstrip("\n")):
                return
            write_lines(options, model, tokenizer, [sentence])
