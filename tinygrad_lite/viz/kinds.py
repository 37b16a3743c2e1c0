"""The pictures that all families have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.viz.boxes import MergeOptions, TokenOptions, draw_merges, draw_tokens
from tinygrad_lite.viz.command import DrawOptions, Kind
from tinygrad_lite.viz.expression import GraphOptions, draw_graph
from tinygrad_lite.viz.figure import Picture
from tinygrad_lite.viz.loss import LossOptions, draw_loss
from tinygrad_lite.viz.neighbours import NeighbourOptions
from tinygrad_lite.viz.schedule import ScheduleOptions, draw_schedule

MANY = 100
Make = Callable[[Sequence[str], Any], Picture]


def model_kinds(
    positions: Make, position_options: type[DrawOptions], neighbours: Make, example: str
) -> dict[str, Kind]:
    """The pictures of a model's embeddings by name, each made by a function of its family.

    Args:
        example: a checkpoint.
    """
    return {
        "positions": Kind(
            "position codes and their similarity; without a checkpoint the sinusoidal ones",
            positions,
            position_options,
            "CHECKPOINT",
            at_least=0,
        ),
        "neighbours": Kind(
            "the nearest tokens by their embeddings, and a map of them",
            neighbours,
            NeighbourOptions,
            "CHECKPOINT",
            example,
        ),
    }


def shared_kinds(load: Callable[[Path], Tokenizer]) -> dict[str, Kind]:
    """These pictures by name.

    Args:
        load: reads the tokenizer of a checkpoint.
    """
    return {
        "tokens": Kind(
            "one text cut into tokens: by every kind of tokenizer, learned from a text, and by those of checkpoints",
            lambda names, options: draw_tokens(names, options, load),
            TokenOptions,
            "TEXT_FILE, CORPUS or CHECKPOINT ...",
            'goethe --text "Es irrt der Mensch"',
            at_most=MANY,
        ),
        "merges": Kind(
            "byte-pair encoding step by step, with the number of each pair",
            draw_merges,
            MergeOptions,
            "TEXT ...",
            '"Fischers Fritz fischt frische Fische"',
            at_most=MANY,
        ),
        "schedule": Kind(
            "the learning rate over the steps of presets, or of options",
            draw_schedule,
            ScheduleOptions,
            "PRESET ...",
            at_most=MANY,
            at_least=0,
        ),
        "loss": Kind(
            "the training and validation losses of runs; RUN is a run's folder or its metrics.csv",
            lambda names, options: draw_loss([Path(name) for name in names], options),
            LossOptions,
            "RUN ...",
            "out/goethe",
            at_most=MANY,
        ),
        "graph": Kind(
            "an expression with the value and the gradient of every operation",
            draw_graph,
            GraphOptions,
            "EXPRESSION",
            '"(a * b + c).tanh()" --values a=2 b=-3 c=5',
        ),
    }
