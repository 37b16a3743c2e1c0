"""Pictures of a GPT and its parts.

    python -m studies.draw attention out/goethe --text "Habe nun, ach!" --out attention.svg
    python -m studies.draw positions                       the sinusoidal codes; with a checkpoint, its positions
    python -m studies.draw neighbours out/goethe --tokens Faust Herz --out neighbours.svg
    python -m studies.draw tokens my.txt --text "Es irrt der Mensch"
    python -m studies.draw merges "Fischers Fritz fischt frische Fische"
    python -m studies.draw schedule goethe reverse
    python -m studies.draw loss out/goethe
    python -m studies.draw graph "(a * b + c).tanh()" --values a=2 b=-3 c=5

docs/pictures.md shows each of them, and how to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gpt.inside import self_attention
from gpt.trained import load_trained
from studies.pictures.attention import AttentionOptions, draw_attention
from studies.pictures.command import Kind, draw
from studies.pictures.kinds import all_kinds
from studies.pictures.positions import POSITIONS, PositionOptions, draw_learned, draw_rotary, draw_sinusoidal
from tinygrad_lite.errors import OptionError
from workshop.cli.console import run_command
from workshop.figure import Picture


def attention(names: Sequence[str], options: AttentionOptions) -> Picture:
    """Where the model looks while it reads a text.

    Raises: OptionError if there is no text, or if it is too long.
    """
    trained = load_trained(Path(names[0]))
    tokenizer, room = trained.tokenizer, trained.config.block_size
    ids = tokenizer.encode_whole(tokenizer.prepare(options.text))
    if not ids:
        raise OptionError('give the model something to read: --text "Habe nun, ach!"')
    if len(ids) > room:
        raise OptionError(f"--text has {len(ids):,} tokens, but the model reads at most {room}: use a shorter text")
    found = self_attention(trained.make_model(), trained.tokenizer, ids)
    return draw_attention(found, f"self-attention of {names[0]}", options)


def positions(names: Sequence[str], options: PositionOptions) -> Picture:
    """The codes of positions: those of a checkpoint, or the sinusoidal ones.

    Raises: OptionError if the model has no positions.
    """
    if not names:
        return draw_sinusoidal(options.length, options.width)
    trained = load_trained(Path(names[0]))
    config, length = trained.config, min(options.length, trained.config.block_size)
    if config.positions == "learned":
        return draw_learned(trained.weights["position_embedding.weight"][:length], names[0])
    if config.positions == "sinusoidal":
        return draw_sinusoidal(length, config.n_embd)
    if config.positions == "rotary":
        return draw_rotary(config.frequencies, length, names[0])
    raise OptionError(
        f"{names[0]} has no position codes (--positions none): it knows the order of tokens only from how many it sees"
    )


KINDS = all_kinds(
    load_trained,
    Kind(
        "where the model looks while it reads a text, in every layer and head",
        attention,
        AttentionOptions,
        'out/goethe --text "Habe nun, ach!"',
    ),
    Kind(POSITIONS, positions, PositionOptions),
)
main = partial(draw, "python -m studies.draw", KINDS)


if __name__ == "__main__":
    run_command("studies.draw", main)
