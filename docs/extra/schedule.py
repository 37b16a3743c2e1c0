"""The learning rate over the steps, of presets and of options of train.py.

    python docs/extra/schedule.py goethe goethe-char reverse
    python docs/extra/schedule.py --schedule inverse_square_root --warmup_iters 400 --out rate.svg

Without --out the picture is schedule.svg; a file that ends with .csv has the numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from itertools import cycle

import numpy as np

from extra.options import ShelfOptions
from extra.plots.figure import COLOURS, DrawOptions, Picture, count_steps, plain_axes
from extra.studies.draw import Kind, draw
from tinygrad_lite.errors import counted
from training.cli.console import run_command
from training.cli.options import build, fields_of, find_preset, read_preset
from training.options import TrainOptions

COMMAND = "python docs/extra/schedule.py"
MAX_POINTS = 5000


@dataclass
class AllOptions(ShelfOptions, TrainOptions):
    """The options of train.py that all families have."""


# Those that say how the learning rate changes.
NAMES = "max_iters learning_rate schedule decay_lr warmup_iters lr_decay_iters min_lr plateau".split()
FIELDS, KINDS = fields_of(AllOptions)
# The options of `schedule`: each is None, meaning the preset's value, unless it is given.
ScheduleOptions = make_dataclass(
    "ScheduleOptions",
    [(name, KINDS[name] | None, field(default=None, metadata=FIELDS[name].metadata)) for name in NAMES],
    bases=(DrawOptions,),
)
STYLES = ("-", "--", ":", "-.")


def main(argv: Sequence[str]) -> int:
    """Draw the learning rate of what the command line names; returns the exit status."""
    about = "presets of train.py; none: its own defaults"
    return draw(Kind(draw_schedule, ScheduleOptions, "", "PRESET ...", about), argv, COMMAND, "schedule")


def draw_schedule(presets: Sequence[str], options: ScheduleOptions) -> Picture:
    """The learning rate over the steps of presets, or of options.

    The options change that of each preset; without a preset, they change train.py's own defaults.

    Raises: OptionError if there is no such preset.
    """
    given = {name: getattr(options, name) for name in NAMES if getattr(options, name) is not None}
    curves, rows = {}, [("preset", "step", "learning_rate")]
    for name in presets or ["train.py's defaults"]:
        known = read_preset(find_preset(name)) if presets else {}
        known = {key: value for key, value in known.items() if key in NAMES}
        chosen = build(AllOptions, (f"preset {name}", known), ("command line", given))
        steps = np.unique(np.linspace(0, max(chosen.max_iters - 1, 0), MAX_POINTS).astype(int))
        rates = np.array([chosen.learning_rate_at(int(step)) for step in steps])
        kind = chosen.schedule.replace("_", " ") if chosen.decay_lr else "constant"
        curves[name] = (f"{name}: {kind}, {counted(chosen.max_iters, 'step')}", steps, rates)
        rows += [(name, int(step), float(rate)) for step, rate in zip(steps, rates, strict=True)]

    def draw(figure) -> None:
        axes = figure.add_subplot()
        for (label, steps, rates), colour, style in zip(curves.values(), cycle(COLOURS), cycle(STYLES), strict=False):
            axes.plot(steps, rates, style, color=colour, linewidth=1.8, label=label)
        axes.set(xlabel="step (updates of the weights)", ylabel="learning rate", ylim=(0, None))
        count_steps(axes.xaxis)
        plain_axes(axes)
        axes.legend(frameon=False)

    caption = (
        "By how much an update follows the gradient. It rises from 0 during the warm-up, while the optimizer's means "
        "are still rough; a large rate then learns fast, and the fall at the end lets the weights settle. Muon "
        "multiplies the rate of the matrices by its own factor."
    )
    return Picture(f"Learning rate over training: {', '.join(curves)}", caption, (7.2, 3.6), draw, table=rows)


if __name__ == "__main__":
    run_command("schedule", main)
