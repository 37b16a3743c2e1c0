"""Pictures of a translation model and its parts.

    python -m studies.draw_translation attention out/translate-de-en --text "Wo ist der Bahnhof?" --out attention.svg
    python -m studies.draw_translation attention out/translate-de-en --text "Wo ist der Bahnhof?" --part encoder
    python -m studies.draw_translation positions out/translate-de-en
    python -m studies.draw_translation neighbours out/translate-de-en --tokens Haus house

and those that all families share, such as loss. docs/pictures.md shows each of them, and how to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seq2seq.attention import PARTS, attention_weights
from seq2seq.task import FAMILY
from seq2seq.translate import translate
from studies.pictures.attention import AttentionOptions, draw_attention
from studies.pictures.command import Kind, draw
from studies.pictures.kinds import all_kinds
from studies.pictures.positions import POSITIONS, PositionOptions, draw_learned, draw_rotary, draw_sinusoidal
from tinygrad_lite.errors import OptionError
from workshop.cli.console import run_command, say
from workshop.cli.options import option
from workshop.corpora.cleaning import normalise
from workshop.figure import Picture


@dataclass
class TranslationAttentionOptions(AttentionOptions):
    """The options of `attention`."""

    part: str = option("cross", "the decoder's attention to the sentence, or self-attention", choices=tuple(PARTS))
    beam: int = option(5, "width of the search for the translation; 1: greedy", unit="hypotheses", low=1, high=1000)


@dataclass
class TranslationPositionOptions(PositionOptions):
    """The options of `positions`."""

    part: str = option("encoder", "whose learned positions", choices=("encoder", "decoder"))


def attention(names: Sequence[str], options: TranslationAttentionOptions) -> Picture:
    """What the encoder or decoder attends to while the model translates a sentence.

    Raises: OptionError if there is no sentence, or if it is too long.
    """
    trained = FAMILY.load(Path(names[0]))
    sentence, room = " ".join(normalise(options.text).split()), trained.config.block_size
    length = len(trained.tokenizer.encode(sentence))
    if not length:
        raise OptionError('give a sentence to translate: --text "Wo ist der Bahnhof?"')
    if length > room:
        raise OptionError(f"--text has {length:,} tokens, but the model reads at most {room}: use a shorter sentence")
    model = trained.make_model()
    ((best,),) = translate(model, trained.tokenizer, [sentence], beam=options.beam)
    say(f"translation: {best.text}")
    found = attention_weights(model, trained.tokenizer, sentence, best.tokens, options.part)
    return draw_attention(found, f"{PARTS[options.part]} of {names[0]}", options)


def positions(names: Sequence[str], options: TranslationPositionOptions) -> Picture:
    """The codes of positions, or the rotation of rotary ones: those of a checkpoint, or the sinusoidal codes."""
    if not names:
        return draw_sinusoidal(options.length, options.width)
    trained = FAMILY.load(Path(names[0]))
    length = min(options.length, trained.config.block_size)
    if trained.config.positions == "sinusoidal":
        return draw_sinusoidal(length, trained.config.n_embd)
    if trained.config.positions == "rotary":  # the same in encoder and decoder
        return draw_rotary(trained.config.frequencies, length, names[0])
    side = "source" if options.part == "encoder" else "target"
    return draw_learned(trained.weights[f"{side}_positions.weight"][:length], f"{names[0]} ({options.part})")


KINDS = all_kinds(
    FAMILY.load,
    Kind(
        "what the decoder attends to in the sentence, or self-attention, in every layer and head",
        attention,
        TranslationAttentionOptions,
        'out/translate-de-en --text "Wo ist der Bahnhof?"',
    ),
    Kind(POSITIONS, positions, TranslationPositionOptions),
)
main = partial(draw, "python -m studies.draw_translation", KINDS)


if __name__ == "__main__":
    run_command("studies.draw_translation", main)
