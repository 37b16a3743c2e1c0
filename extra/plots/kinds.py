"""The pictures that all families have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from extra.plots.boxes import MergeOptions, TokenOptions, draw_merges, draw_tokens
from extra.plots.command import CHECKPOINT, Kind
from extra.plots.figure import Picture
from extra.plots.loss import LossOptions, draw_loss
from extra.plots.measures import MeasuresOptions, draw_measures
from extra.plots.neighbours import NeighbourOptions, draw_neighbours
from extra.plots.schedule import ScheduleOptions, draw_schedule
from text.tokenizers.base import Tokenizer
from training.family import Trained

RUNS = ("RUN ...", "a run's folder or its metrics.csv")  # what is named on the command line, and what it is


def all_kinds(load: Callable[[Path], Trained], attention: Kind, positions: Kind) -> dict[str, Kind]:
    """All pictures of a family by name.

    Args:
        load: reads a checkpoint of the family.
        attention, positions: made by the family's own functions.
    """

    def neighbours(names: Sequence[str], options: NeighbourOptions) -> Picture:
        trained = load(Path(names[0]))
        return draw_neighbours(trained.tokenizer, trained.weights["token_embedding.weight"], names[0], options)

    about = "the nearest tokens by their embeddings, and a map of them"
    return {
        "attention": attention,
        "positions": positions,
        "neighbours": Kind(about, neighbours, NeighbourOptions, attention.example.split(" --")[0]),
        **shared_kinds(lambda path: load(path).tokenizer),
    }


def shared_kinds(load: Callable[[Path], Tokenizer]) -> dict[str, Kind]:
    """The pictures without a model by name.

    Args:
        load: reads the tokenizer of a checkpoint.
    """
    return {
        "tokens": Kind(
            "one text cut into tokens, by every kind of tokenizer and by those of checkpoints",
            lambda names, options: draw_tokens(names, options, load),
            TokenOptions,
            'goethe --text "Es irrt der Mensch"',
            "SOURCE ...",
            f"a text in UTF-8 or a corpus by name, from which every kind is learned, or {CHECKPOINT}",
        ),
        "merges": Kind(
            "byte-pair encoding step by step, with the number of each pair",
            draw_merges,
            MergeOptions,
            '"Fischers Fritz fischt frische Fische"',
            "TEXT ...",
            "the text itself",
        ),
        "schedule": Kind(
            "the learning rate over the steps of presets, or of options",
            draw_schedule,
            ScheduleOptions,
            named="PRESET ...",
            about_named="presets of train.py; none: its own defaults",
        ),
        "loss": Kind("the training and validation losses of runs", draw_loss, LossOptions, "out/goethe", *RUNS),
        "measures": Kind(
            "what the evaluations of runs measured besides the loss",
            draw_measures,
            MeasuresOptions,
            "out/rewards",
            *RUNS,
        ),
    }
