"""From which width is the GPU faster, and by how much? A training step of GPTs of many widths, on CPU and GPU.

    python -m benchmarks.device                        a table on stdout, about two minutes
    python -m benchmarks.device --out device.svg       also a plot
    python -m benchmarks.device --dtype bfloat16       matrix products in bfloat16 on the GPU; the CPU stays at float32
    python -m benchmarks.device --cpu-only             the CPU alone, if there is no GPU

Everything but the width stays the same: layers, context, batch. Both devices run the same code on the same batches from
the same weights, in one process, and take turns; their first losses must agree.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import cpu_model, gpu_model, installed
from benchmarks.our_side import make_model
from benchmarks.scaling import line
from benchmarks.shapes import VOCABULARY, Shape
from benchmarks.steps import Step, time_group, trainer, warm_up
from benchmarks.table import shown, spread
from gpt.options import GPTOptions
from tinygrad_lite.cli.command_line import parse_command_line
from tinygrad_lite.cli.console import run_command, say
from tinygrad_lite.cli.errors import OptionError, UserError
from tinygrad_lite.cli.options import build, option
from tinygrad_lite.device import get_device
from tinygrad_lite.precision import PRECISIONS, precision
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.training.run_folder import available_cores, tune_memory
from tinygrad_lite.viz.figure import COLOURS, check_plot, new_figure, own_style, save, write_out

SAME_LOSS = {"float32": 1e-4, "tf32": 1e-3, "bfloat16": 2e-2}  # relative, before the first update


@dataclass
class DeviceOptions:
    """The options of `python -m benchmarks.device`."""

    widths: list[str] = option(
        ["32", "64", "128", "192", "256", "384", "512", "768", "1024"], "widths of the model (n_embd), ascending"
    )
    head_width: int = option(64, "width of an attention head; a narrower model has one head", low=1)
    n_layer: int = option(4, "blocks", low=1)
    block_size: int = option(128, "context", unit="tokens", low=1)
    batch_size: int = option(16, "batch", unit="sequences", low=1)
    dtype: str = option("float32", "precision of the GPU's products; the CPU's is float32", choices=PRECISIONS)
    turns: int = option(5, "turns of each device", unit="turns", low=1)
    seconds: float = option(0.3, "minimum length of a turn", unit="seconds", above=0.0)
    longest: float = option(3.0, "wider models skip the CPU once a step takes longer", unit="seconds", above=0.0)
    cpu_only: bool = option(False, "measure the CPU alone")
    out: str = option("", "plot to write: .svg, .png or .pdf", unit="file")


@dataclass
class Width:
    """The results for one width: by device, the milliseconds of a step in each turn."""

    width: int
    parameters: int
    turns: dict[str, list[float]] = field(default_factory=dict)

    @property
    def ratios(self) -> list[float]:
        """The speed of the GPU as a multiple of the CPU's, turn by turn; empty without both."""
        return [cpu / gpu for cpu, gpu in zip(self.turns.get("cpu", []), self.turns.get("cuda", []), strict=False)]


def main(argv: list[str]) -> int:
    """Measure, print the table with its conclusions, plot."""
    parsed = parse_command_line(
        DeviceOptions, argv, prog="python -m benchmarks.device", description=__doc__.split("\n")[0]
    )
    options = build(DeviceOptions, ("command line", parsed.values))
    widths = read_widths(options)
    if not options.cpu_only:
        get_device("cuda")  # if there is none, this raises the reason
    if options.out:
        check_plot(options.out, "--out")
    tune_memory()
    measured: list[Width] = []
    try:
        with precision(options.dtype):
            for one in sweep(options, widths):
                measured.append(one)
                say(f"width {one.width}: " + ", ".join(f"{name} {spread(ms)} ms" for name, ms in one.turns.items()))
                if options.out:  # after each width, so that an interrupted run leaves a picture
                    with own_style():
                        save(plot(measured), Path(options.out))
    finally:  # an interrupted run also prints what it has
        if measured:
            print(table(measured, options, widths[-1]), end="", flush=True)
    return 0


def read_widths(options: DeviceOptions) -> list[int]:
    """The widths as numbers.

    Raises: OptionError if there are none, or if they are not ascending.
    """
    text = " ".join(options.widths)
    widths = [int(part) if part.isascii() and part.isdigit() else 0 for part in text.replace(",", " ").split()]
    if not widths or sorted({*widths, 0}) != [0, *widths]:
        raise OptionError(f"--widths {text}: must be whole numbers above 0, ascending, such as 32 64 128")
    return widths


# --- measuring ------------------------------------------------------------------------------------------------


def shape_of(options: DeviceOptions, width: int) -> Shape:
    """The GPT of this width, with as many heads of about head_width as divide it."""
    heads = next(n for n in range(max(1, width // options.head_width), 0, -1) if width % n == 0)
    sizes = {"n_layer": options.n_layer, "block_size": options.block_size, "batch_size": options.batch_size}
    return Shape(GPTOptions(n_embd=width, n_head=heads, **sizes), VOCABULARY, options.block_size)


def sweep(options: DeviceOptions, widths: Sequence[int]) -> Iterator[Width]:
    """Measure one width after the other, on each device until it is too slow or its memory is full."""
    devices = ["cpu"] if options.cpu_only else ["cpu", "cuda"]
    for width in widths:
        shape = shape_of(options, width)
        one = Width(width, shape.blueprint.num_parameters())
        steps, repeats, losses = {}, {}, {}
        for name in list(devices):
            try:
                steps[name], losses[name] = prepare(shape, name)
                _, repeats[name] = warm_up(steps[name], get_device(name).synchronize, options.seconds)
            except MemoryError:  # CuPy's is one, too
                say(f"width {width}: the memory of device {name} is full; it skips wider models")
                devices.remove(name)
                steps.pop(name, None)
        check_losses(width, losses, SAME_LOSS[options.dtype])
        one.turns = take_turns(steps, repeats, options)
        if one.turns:
            yield one
        if min(one.turns.get("cpu", [0])) > 1e3 * options.longest:
            devices.remove("cpu")
        if not devices:
            return


def prepare(shape: Shape, name: str) -> tuple[Step, float]:
    """A training step on this device, and the loss before the first step."""
    model = make_model(shape)
    model.to(name)
    optimizer = shape.options.make_optimizer(model)
    batches = [tuple(Tensor(part, device=name) for part in batch) for batch in shape.batches()]
    train = trainer(shape.options, model, optimizer)

    def step(number: int) -> Tensor:
        return train(batches[number % len(batches)], number)

    return step, step(0).item()


def check_losses(width: int, losses: Mapping[str, float], tolerance: float) -> None:
    """Raise UserError if the devices compute different losses: then their times are meaningless."""
    first = list(losses.values())
    if not all(math.isclose(loss, first[0], rel_tol=tolerance) for loss in first):
        raise UserError(
            f"width {width}: the initial losses of the devices differ, so their times are meaningless: {losses}"
        )


def take_turns(steps: Mapping[str, Step], repeats: Mapping[str, int], options: DeviceOptions) -> dict[str, list[float]]:
    """By device, the milliseconds of a step in each turn. A device whose steps exceed `longest` gets one turn."""
    turns: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(options.turns):
        for name, step in steps.items():
            if turn == 0 or turns[name][0] <= 1e3 * options.longest:
                ms, _, _ = time_group(step, get_device(name).synchronize, repeats[name], turn * repeats[name])
                turns[name].append(ms)
    return turns


# --- the results ---------------------------------------------------------------------------------------------


def table(measured: Sequence[Width], options: DeviceOptions, widest: int) -> str:
    """The page: machine and settings, a line for each width, and the conclusions.

    Args:
        widest: the widest model that was asked for.
    """
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "one per core")
    lines = [
        "# A training step on CPU and GPU",
        "",
        f"- {options.n_layer} layers, heads of {options.head_width}, context {options.block_size}, "
        f"batch {options.batch_size}, vocabulary {VOCABULARY}; turns: {options.turns}",
        f"- CPU: {cpu_model()}, {available_cores()} cores, float32, one process, "
        f"threads for matrix products: {threads}, numpy {installed('numpy')}",
    ]
    if not options.cpu_only:
        lines.append(f"- GPU: {gpu_model()}, {options.dtype}")
    lines += [
        "",
        "| width | parameters | CPU, ms | GPU, ms | speed-up on the GPU |",
        "|---|---|---|---|---|",
    ]
    for one in measured:
        cells = [spread(one.turns[name]) if name in one.turns else "–" for name in ("cpu", "cuda")]
        cells.append(f"**{spread(one.ratios)}**" if one.ratios else "–")
        lines.append(f"| {one.width} | {one.parameters:,} | " + " | ".join(cells) + " |")
    lines += ["", "Numbers are medians over the turns, with quartiles in brackets.", ""]
    return "\n".join([*lines, *conclusions(measured, options, widest)]) + "\n"


def conclusions(measured: Sequence[Width], options: DeviceOptions, widest: int) -> list[str]:
    """The sentences below the table: where the curves cross, the largest speed-up, what was skipped."""
    said = []
    ratios = {one.width: statistics.median(one.ratios) for one in measured if one.ratios}
    if ratios:
        best = max(ratios, key=ratios.__getitem__)
        said.append(crossing(ratios))
        if ratios[best] > 1:
            said.append(f"The largest speed-up is {shown(ratios[best])}, at a width of {best}.")
    on_cpu = [one for one in measured if "cpu" in one.turns]
    if on_cpu and on_cpu[-1].width < widest:
        seconds = statistics.median(on_cpu[-1].turns["cpu"]) / 1e3
        said.append(
            f"The CPU was skipped beyond a width of {on_cpu[-1].width}, where a step took {shown(seconds)} s "
            f"(--longest {options.longest:g})."
        )
    return said


def crossing(ratios: Mapping[int, float]) -> str:
    """The sentence about the width from which the GPU is faster.

    Between two widths it is interpolated on logarithmic scales, on which the ratio is nearly a straight line.

    >>> crossing({32: 0.5, 128: 2.0})
    'The GPU is faster from a width of about 64.'
    """
    widths = sorted(ratios)
    slower = [width for width in widths if ratios[width] < 1]
    if not slower:
        return f"The GPU is faster at every width measured, from {widths[0]}."
    if len(slower) == len(widths):
        return f"The CPU is faster at every width measured, up to {widths[-1]}."
    if slower[-1] == widths[-1]:
        return f"There is no width from which the GPU is faster: at the largest, {widths[-1]}, the CPU is."
    below, above = slower[-1], widths[widths.index(slower[-1]) + 1]
    share = math.log(1 / ratios[below]) / math.log(ratios[above] / ratios[below])
    return f"The GPU is faster from a width of about {below * (above / below) ** share:.0f}."


def plot(measured: Sequence[Width]):
    """Top: the milliseconds of both; bottom: the speed-up on the GPU. Bars show the quartiles."""
    figure = new_figure(7.2, 6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    names = {"cpu": "CPU", "cuda": "GPU"}
    for colour, (name, label) in zip(COLOURS, names.items(), strict=False):
        there = [one for one in measured if name in one.turns]
        if there:
            line(above, [one.width for one in there], [one.turns[name] for one in there], colour, label)
    both = [one for one in measured if one.ratios]
    if both:
        line(below, [one.width for one in both], [one.ratios for one in both], COLOURS[2])
    below.axhline(1, color="black", linewidth=0.8)
    widths = [one.width for one in measured]
    for axes in (above, below):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        write_out(axes.yaxis)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.xaxis.minorticks_off()
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    above.set_ylabel("ms per training step")
    below.set_ylabel("speed-up over the CPU")
    below.set_xlabel("width (n_embd)")
    above.legend(frameon=False)
    return figure


if __name__ == "__main__":
    run_command("benchmarks", main)
