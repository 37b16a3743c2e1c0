"""The pictures that all families have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from studies.pictures.boxes import MergeOptions, TokenOptions, draw_merges, draw_tokens
from studies.pictures.command import DrawOptions, Kind
from studies.pictures.expression import GraphOptions, draw_graph
from studies.pictures.loss import LossOptions, draw_loss
from studies.pictures.neighbours import NeighbourOptions, draw_neighbours
from studies.pictures.schedule import ScheduleOptions, draw_schedule
from workshop.figure import Picture
from workshop.run.family import Trained
from workshop.tokenizers.base import Tokenizer

Make = Callable[[Sequence[str], Any], Picture]
CHECKPOINT = "a checkpoint, a run's folder, or, for a GPT, a folder in Hugging Face's layout or smollm2"


def all_kinds(
    load: Callable[[Path], Trained], attention: Kind, positions: Make, position_options: type[DrawOptions]
) -> dict[str, Kind]:
    """All pictures of a family by name.

    Args:
        load: reads a checkpoint of the family.
        attention, positions: made by functions of its own.
    """

    def neighbours(names: Sequence[str], options: NeighbourOptions) -> Picture:
        trained = load(Path(names[0]))
        return draw_neighbours(trained.tokenizer, trained.weights["token_embedding.weight"], names[0], options)

    example = attention.example.split(" --")[0]
    return {
        "attention": attention,
        "positions": Kind(
            "position codes and their similarity; without a checkpoint the sinusoidal ones",
            positions,
            position_options,
            "CHECKPOINT",
            CHECKPOINT,
            example,
            is_needed=False,
        ),
        "neighbours": Kind(
            "the nearest tokens by their embeddings, and a map of them",
            neighbours,
            NeighbourOptions,
            "CHECKPOINT",
            CHECKPOINT,
            example,
        ),
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
            "SOURCE ...",
            f"a text in UTF-8 or a corpus by name, from which every kind is learned, or {CHECKPOINT}",
            'goethe --text "Es irrt der Mensch"',
        ),
        "merges": Kind(
            "byte-pair encoding step by step, with the number of each pair",
            draw_merges,
            MergeOptions,
            "TEXT ...",
            "the text itself",
            '"Fischers Fritz fischt frische Fische"',
        ),
        "schedule": Kind(
            "the learning rate over the steps of presets, or of options",
            draw_schedule,
            ScheduleOptions,
            "PRESET ...",
            "presets of train.py; none: its own defaults",
            "goethe reverse",
            is_needed=False,
        ),
        "loss": Kind(
            "the training and validation losses of runs",
            lambda names, options: draw_loss([Path(name) for name in names], options),
            LossOptions,
            "RUN ...",
            "a run's folder or its metrics.csv",
            "out/goethe",
        ),
        "graph": Kind(
            "an expression with the value and the gradient of every operation",
            draw_graph,
            GraphOptions,
            "EXPRESSION",
            "names, numbers, + - * / ** @, and methods such as tanh() or sum()",
            '"(a * b + c).tanh()" --values a=2 b=-3 c=5',
        ),
    }
