"""Pictures of a GPT, a translation model or an encoder, and of their parts.

    python -m extra.studies.draw attention out/goethe --text "Habe nun, ach!" --out attention.svg
    python -m extra.studies.draw attention out/translate-de-en --text "Wo ist der Bahnhof?" --part encoder
    python -m extra.studies.draw attention minilm --text "The animal was too tired." --layer 4 --head 2
    python -m extra.studies.draw positions                       the sinusoidal codes; with a checkpoint, its positions
    python -m extra.studies.draw neighbours out/goethe --tokens Faust Herz --out neighbours.svg
    python -m extra.studies.draw loss out/goethe

docs/extra/pictures.md shows each of them, and how to read it. Each kind of picture has its own options, a dataclass,
and a function that makes a `Picture`. The file that a picture is written to decides its form: .svg, .png and .pdf are
images, .csv and .npz the numbers in it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from extra import families
from extra.encoders.bert import Bert
from extra.encoders.family import BERT, VIT
from extra.encoders.words import whole_sequence
from extra.family import read_any
from extra.inside import Attention, look_inside, pieces
from extra.inside.gpt import self_attention
from extra.inside.seq2seq import PARTS, attention_weights
from extra.plots import vectors
from extra.plots.attention import AttentionOptions, draw_attention
from extra.plots.figure import METADATA, DrawOptions, Picture, check_file, write_each
from extra.plots.training import LossOptions, MeasuresOptions, draw_loss, draw_measures
from seq2seq.model import Seq2Seq
from seq2seq.translate import translate
from tinygrad_lite.errors import OptionError
from tinygrad_lite.tensor import Tensor
from training.cli.command_line import read_command
from training.cli.console import run_command, say, show
from training.cli.options import not_among
from training.corpora.cleaning import one_line
from training.family import Family, Trained

COMMAND = "python -m extra.studies.draw"
CHECKPOINT = "a checkpoint, a run's folder, a folder in Hugging Face's layout, smollm2 or minilm"
RUNS = ("RUN ...", "a run's folder or its metrics.csv")  # what is named on the command line, and what it is


def load(name: str, *others: Family) -> Trained:
    """A trained GPT, translation model or BERT, or a model of one of the other families."""
    return read_any(Path(name), (families.GPT, families.SEQ2SEQ, BERT, *others))


def attention(names: Sequence[str], options: AttentionOptions) -> Picture:
    """Where the model looks while it reads or translates a text, in every layer and head.

    Raises: OptionError if there is no text, if it is too long, or if an option is for other models.
    """
    trained = load(names[0])
    tokenizer, room = trained.tokenizer, trained.config.block_size
    translates = issubclass(trained.model_class, Seq2Seq)
    if not translates and (options.part or options.beam):
        raise OptionError("--part and --beam are for translation models; others have only self-attention")
    text = one_line(options.text) if translates else tokenizer.prepare(options.text)
    ids = tokenizer.encode_whole(text)
    if not ids:
        raise OptionError('give the model something to read: --text "Habe nun, ach!"')
    if trained.model_class is Bert:
        ids = whole_sequence(tokenizer, text).tolist()
    if len(ids) > room:
        raise OptionError(f"--text has {len(ids):,} tokens, but the model reads at most {room}: use a shorter text")
    model = trained.make_model()
    if trained.model_class is Bert:
        tokens = pieces(tokenizer, ids)
        found = Attention(tokens, tokens, look_inside(model, Tensor(np.array([ids]))).attention)
        return draw_attention(found, f"self-attention of {names[0]}", options)
    if not translates:
        return draw_attention(self_attention(model, tokenizer, ids), f"self-attention of {names[0]}", options)
    ((best,),) = translate(model, tokenizer, [text], beam=options.beam or 5)
    say(f"translation: {best.text}")
    part = options.part or "cross"
    found = attention_weights(model, tokenizer, text, best.tokens, part)
    return draw_attention(found, f"{PARTS[part]} of {names[0]}", options)


def positions(names: Sequence[str], options: vectors.PositionOptions) -> Picture:
    """Position codes and their similarity; without a checkpoint the sinusoidal ones.

    Of rotary positions, which have no codes, it is the rotation.

    Raises: OptionError if the model has no positions, or --part is given and it has only one table of them.
    """
    if not names:
        return vectors.draw_sinusoidal(options.length, options.width)
    trained = load(names[0], VIT)
    config, length = trained.config, min(options.length, trained.config.block_size)
    translates = issubclass(trained.model_class, Seq2Seq)
    if options.part and not translates:
        raise OptionError("--part is for translation models; others have one table of positions")
    if config.positions in ("learned", "1d", "2d"):
        part = options.part or "encoder" if translates else "rows" if config.positions == "2d" else ""
        tables = {"encoder": "source_positions", "decoder": "target_positions", "rows": "row_embedding"}
        table = tables.get(part, "position_embedding")
        what = f"{names[0]} ({part})" if part else names[0]
        return vectors.draw_learned(trained.weights[f"{table}.weight"][:length], what)
    if config.positions == "sinusoidal":
        return vectors.draw_sinusoidal(length, config.n_embd)
    if config.positions == "rotary":  # the same in encoder and decoder
        return vectors.draw_rotary(config.frequencies, length, names[0])
    what = f"{names[0]} has no position codes (--positions none)"
    raise OptionError(f"{what}: it knows the order of tokens only from how many it sees")


def neighbours(names: Sequence[str], options: vectors.NeighbourOptions) -> Picture:
    """The nearest tokens by their embeddings, and a map of them."""
    trained = load(names[0])
    return vectors.draw_neighbours(trained.tokenizer, trained.weights["token_embedding.weight"], names[0], options)


# --- the command ----------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of picture.

    Attributes:
        make: makes the picture from what is named on the command line, with the options.
        options: the dataclass of its options.
        example: what may be named on the command line; empty if nothing need be.
        named: what that is called, with ... if there may be more.
        about_named: what it is.
    """

    make: Callable[[Sequence[str], Any], Picture]
    options: type[DrawOptions]
    example: str = ""
    named: str = "CHECKPOINT"
    about_named: str = CHECKPOINT

    @property
    def about(self) -> str:
        """What it shows, for --help: the first line of the docstring of `make`, without its end."""
        first, _, _ = self.make.__doc__.partition(".\n")
        return f"{first[0].lower()}{first[1:].removesuffix('.')}"


KINDS = {
    "attention": Kind(attention, AttentionOptions, 'out/goethe --text "Habe nun, ach!"'),
    "positions": Kind(positions, vectors.PositionOptions),
    "neighbours": Kind(neighbours, vectors.NeighbourOptions, "out/goethe"),
    "loss": Kind(draw_loss, LossOptions, "out/goethe", *RUNS),
    "measures": Kind(draw_measures, MeasuresOptions, "out/rewards", *RUNS),
}


def main(argv: Sequence[str]) -> int:
    """Run the command line and return the exit status.

    Raises: UserError with one sentence if a picture cannot be made.
    """
    what, *rest = argv or ["--help"]
    if what in ("-h", "--help"):
        show(overview())
        return 0
    if what in ("merges", "schedule", "tokens"):
        raise OptionError(f"{what} is a script of its own: python docs/extra/{what}.py")
    if what not in KINDS:
        raise OptionError(f"there is no picture {not_among(what, KINDS)}")
    return draw(KINDS[what], rest, f"{COMMAND} {what}", what)


def draw(kind: Kind, argv: Sequence[str], command: str, what: str) -> int:
    """Make a picture of this kind, as the command line asks, and write it; `what` names the file if --out does not.

    Raises: as `main`.
    """
    more = {"about_positional": kind.about_named, "common": ("out",)}
    options, names = read_command(kind.options, argv, command, f"Draw {kind.about}.", kind.named, kind.example, **more)
    for name in options.out:
        check_file(name, "--out", ".csv", ".npz")
    with np.errstate(all="ignore"):  # numbers that are not finite are refused when they are drawn
        picture = kind.make(names, options)
    if picture.text:
        show(picture.text)
    write_each(picture, *map(Path, options.out or ([] if picture.text else [picture.default or f"{what}.svg"])))
    return 0


def overview() -> str:
    """The page of --help that lists the pictures."""
    lines = [f"usage: {COMMAND} WHAT ... --out FILE", "", "The pictures, each with its own --help:"]
    lines += [f"  {name:<12} {kind.about}" for name, kind in KINDS.items()]
    files = ", ".join(METADATA)
    lines += ["", f"FILE ends with {files} for the picture, .csv or .npz for the numbers in it; there may be several."]
    return "\n".join(lines)


if __name__ == "__main__":
    run_command("extra.studies.draw", main)
