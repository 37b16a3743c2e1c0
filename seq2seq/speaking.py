"""What `sample.py` does with a translation model: a sentence, a file, stdin or a conversation in, translations out.

Every line is a sentence and gives a line on stdout, an empty one an empty one, whichever way it comes in.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from seq2seq.attention import FORMATS, cross_attention, draw_attention
from seq2seq.model import Seq2Seq
from seq2seq.translate import draw, translate
from tinygrad_lite.cli.console import say, shown
from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.corpora.cleaning import normalise
from tinygrad_lite.tokenizers.base import Tokenizer

# The options of sample.py that mean something to a translation.
DRAWING = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "seed",
    "num_samples",
}
KNOWN = DRAWING | {"start", "beam", "n_best", "length_penalty", "greedy", "interactive", "out_dir", "device"}
KNOWN |= {"attention"}


def check_options(options: Any, given: Collection[str]) -> None:
    """Refuse options that only a model that continues a text has a use for, and pictures of nothing.

    Raises: OptionError.
    """
    if "score" in given:
        raise OptionError("--score is for models that continue a text: python -m seq2seq.evaluate scores translations")
    if unused := [name for name in given if name not in KNOWN]:
        raise OptionError(
            f"--{unused[0]} is for models that continue a text; a translation takes "
            + ", ".join(f"--{name}" for name in sorted(KNOWN))
        )
    if not given.keys() & {"start", "interactive"}:
        raise OptionError('give a sentence: --start "Der Mann liest ein Buch.", --start - for stdin, or --interactive')
    if options.attention and Path(options.attention).suffix.lower() not in FORMATS:
        raise OptionError(f"--attention {options.attention}: must end with one of {', '.join(FORMATS)}")
    drawing = [f"--{name}" for name in ("interactive", *sorted(DRAWING)) if name in given]
    if options.attention and drawing:
        raise OptionError(f"--attention draws one translation, the best: {drawing[0]} does not go with it")


def speak(options: Any, given: Collection[str], model: Seq2Seq, tokenizer: Tokenizer, text: str) -> None:
    """Translate each line of a text, or, interactively, each line that is typed.

    A translation is searched, with a beam or without, unless an option of drawing is given.
    """
    say_lines = draw_lines if DRAWING & set(given) else search_lines
    if not options.interactive:
        lines = text.removesuffix("\n").split("\n")
        say_lines(options, model, tokenizer, lines)
        if options.attention:
            draw_cross_attention(options, model, tokenizer, lines)
        return
    say("type a sentence; an empty line or the end of the input ends")
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = normalise(sys.stdin.readline()).rstrip("\n")
        if not line:
            say("")
            return
        say_lines(options, model, tokenizer, [line])


def draw_lines(options: Any, model: Seq2Seq, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Write num_samples translations of each line, drawn at random."""
    settings = {name: getattr(options, name) for name in DRAWING - {"num_samples"}}
    if options.greedy:
        settings["temperature"] = 0.0
    for number, sentence in enumerate(sentences_in(lines, model, tokenizer)):
        found = draw(model, tokenizer, sentence, first_row=number * options.num_samples, **settings)
        for text in itertools.islice(found, options.num_samples):
            sys.stdout.write(shown(text.replace("\n", " ")) + "\n")
            sys.stdout.flush()


def search_lines(options: Any, model: Seq2Seq, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Write the translation of each line, or its n_best, those with their numbers on stderr."""
    sentences = sentences_in(lines, model, tokenizer)
    settings = {"beam": max(1, options.beam), "n_best": options.n_best, "length_penalty": options.length_penalty}
    found = translate(model, tokenizer, sentences, **settings)
    for hypotheses in found:
        for rank, one in enumerate(hypotheses, start=1):
            if options.n_best > 1:
                say(
                    f"--- {rank}: log-prob {one.log_prob:.4f} nats, length {one.length} tokens, score {one.score:.4f} "
                    f"(log-prob / ((5 + length) / 6)^{options.length_penalty:g})"
                )
            sys.stdout.write(shown(one.text.replace("\n", " ")) + "\n")
    sys.stdout.flush()


def sentences_in(lines: Sequence[str], model: Seq2Seq, tokenizer: Tokenizer) -> list[str]:
    """The lines with single spaces between their words, and a warning if the model cannot read all of them."""
    sentences = [" ".join(line.split()) for line in lines]
    too_long = sum(len(tokenizer.encode(sentence)) > model.config.block_size for sentence in sentences)
    if too_long:
        say(f"warning: of {too_long:,} lines only the first {model.config.block_size} tokens are read: --block_size")
    return sentences


def draw_cross_attention(options: Any, model: Seq2Seq, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    """Plot what the model attended to while it wrote the best translation of the one line.

    Raises: OptionError if there is not one line, or if it is empty.
    """
    sentences = [" ".join(line.split()) for line in lines]
    if len(sentences) != 1 or not sentences[0]:
        raise OptionError(f"--attention draws one sentence, and {len(sentences)} lines were given, or an empty one")
    ((best,),) = translate(
        model, tokenizer, sentences, beam=max(1, options.beam), length_penalty=options.length_penalty
    )
    draw_attention(cross_attention(model, tokenizer, sentences[0], best.tokens), Path(options.attention))
    say(f"wrote {options.attention}")
