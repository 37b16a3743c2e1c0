"""Pictures of a GPT or a translation model, and of their parts.

    python -m extra.studies.draw attention out/goethe --text "Habe nun, ach!" --out attention.svg
    python -m extra.studies.draw attention out/translate-de-en --text "Wo ist der Bahnhof?" --part encoder
    python -m extra.studies.draw positions                       the sinusoidal codes; with a checkpoint, its positions
    python -m extra.studies.draw neighbours out/goethe --tokens Faust Herz --out neighbours.svg
    python -m extra.studies.draw tokens my.txt --text "Es irrt der Mensch"
    python -m extra.studies.draw merges "Fischers Fritz fischt frische Fische"
    python -m extra.studies.draw schedule goethe reverse
    python -m extra.studies.draw loss out/goethe

docs/pictures.md shows each of them, and how to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from extra.inside import Attention
from extra.inside.gpt import self_attention
from extra.inside.seq2seq import PARTS, attention_weights
from extra.plots.attention import AttentionOptions, draw_attention
from extra.plots.command import Kind, draw
from extra.plots.figure import Picture
from extra.plots.kinds import all_kinds
from extra.plots.positions import POSITIONS, PositionOptions, draw_learned, draw_rotary, draw_sinusoidal
from gpt.family import FAMILY as GPT_FAMILY
from gpt.model import GPT
from seq2seq.family import FAMILY as SEQ2SEQ_FAMILY
from seq2seq.translate import translate
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError
from training.cli.console import run_command, say
from training.corpora.cleaning import one_line
from training.family import Trained, read_any


@dataclass
class ReadingOptions(AttentionOptions):
    """The options of `attention`."""

    part: str | None = option(None, "of a translation model: which attention; none: cross", choices=tuple(PARTS))
    beam: int | None = option(None, "of a translation; 1: greedy; none: 5", unit="hypotheses", low=1, high=1000)


@dataclass
class CodeOptions(PositionOptions):
    """The options of `positions`."""

    part: str | None = option(None, "of a translation model; none: encoder", choices=("encoder", "decoder"))


def load(path: Path) -> Trained:
    """A trained GPT or translation model."""
    return read_any(path, (GPT_FAMILY, SEQ2SEQ_FAMILY))


def attention(names: Sequence[str], options: ReadingOptions) -> Picture:
    """Where the model looks while it reads a text, or translates a sentence.

    Raises: OptionError if there is no text, if it is too long, or if an option is for other models.
    """
    trained = load(Path(names[0]))
    tokenizer, room = trained.tokenizer, trained.config.block_size
    is_gpt = trained.model_class is GPT
    if is_gpt and (options.part or options.beam):
        raise OptionError("--part and --beam are for translation models; a GPT has only self-attention")
    text = tokenizer.prepare(options.text) if is_gpt else one_line(options.text)
    ids = tokenizer.encode_whole(text)
    if not ids:
        raise OptionError('give the model something to read: --text "Habe nun, ach!"')
    if len(ids) > room:
        raise OptionError(f"--text has {len(ids):,} tokens, but the model reads at most {room}: use a shorter text")
    if is_gpt:
        found, what = self_attention(trained.make_model(), tokenizer, ids), "self-attention"
    else:
        found, what = of_translation(trained, text, options), PARTS[options.part or "cross"]
    return draw_attention(found, f"{what} of {names[0]}", options)


def of_translation(trained: Trained, sentence: str, options: ReadingOptions) -> Attention:
    """What the encoder or decoder attends to while the model translates a sentence."""
    model = trained.make_model()
    ((best,),) = translate(model, trained.tokenizer, [sentence], beam=options.beam or 5)
    say(f"translation: {best.text}")
    return attention_weights(model, trained.tokenizer, sentence, best.tokens, options.part or "cross")


def positions(names: Sequence[str], options: CodeOptions) -> Picture:
    """The codes of positions, or the rotation of rotary ones: those of a checkpoint, or the sinusoidal codes.

    Raises: OptionError if the model has no positions, or if it is a GPT, which has only one table of them.
    """
    if not names:
        return draw_sinusoidal(options.length, options.width)
    trained = load(Path(names[0]))
    config, length = trained.config, min(options.length, trained.config.block_size)
    is_gpt = trained.model_class is GPT
    if is_gpt and options.part:
        raise OptionError("--part is for translation models; a GPT has one table of positions")
    if config.positions == "learned" and is_gpt:
        return draw_learned(trained.weights["position_embedding.weight"][:length], names[0])
    if config.positions == "learned":
        part = options.part or "encoder"
        side = "source" if part == "encoder" else "target"
        return draw_learned(trained.weights[f"{side}_positions.weight"][:length], f"{names[0]} ({part})")
    if config.positions == "sinusoidal":
        return draw_sinusoidal(length, config.n_embd)
    if config.positions == "rotary":  # the same in encoder and decoder
        return draw_rotary(config.frequencies, length, names[0])
    raise OptionError(
        f"{names[0]} has no position codes (--positions none): it knows the order of tokens only from how many it sees"
    )


KINDS = all_kinds(
    load,
    Kind(
        "where the model looks while it reads or translates a text, in every layer and head",
        attention,
        ReadingOptions,
        'out/goethe --text "Habe nun, ach!"',
    ),
    Kind(POSITIONS, positions, CodeOptions),
)
main = partial(draw, "python -m extra.studies.draw", KINDS)


if __name__ == "__main__":
    run_command("extra.studies.draw", main)
