"""Train the settings of an experiment, several seeds of each, and collect the results in a CSV file.

    python -m benchmarks.experiments --list            the available experiments
    python -m benchmarks.experiments first             train what is missing from benchmarks/experiments/first.toml
    python -m benchmarks.experiments first --table     the results in docs/experiments/first.csv as a Markdown table
    python -m benchmarks.experiments first --plot first.svg    and as a plot, each run a point

An experiment is a TOML file: its first line is a comment that says what it is about, followed by one table for each
setting.

    # two learning rates
    seeds = "1,2,3"

    [[setting]]
    name = "slow"
    options = "goethe-bpe --learning_rate 1e-3"

    [[setting]]
    name = "fast"
    options = "goethe-bpe --learning_rate 3e-3"
    seeds = "1"

`options` is what would follow `python train.py`, and each run is such a process. A successful run becomes a row of the
CSV file, identified by its name, options, seed and commit; a run that has a row is skipped. So the command can be
repeated after it was stopped. A run that was stopped leaves nothing behind.

A setting with `commit = "..."` ran at that commit with options that have been removed since, because they did not help:
its results are shown, and it is no longer trained.

What a row says (`COLUMNS` in `results.py`):

    commit               the latest commit that changed the training code; "dirty" if it was changed since
    seconds              of the training steps alone, from the speeds in metrics.csv; evaluations are excluded
    train_loss           nats per token, mean of the logged steps in the last tenth of the run
    checkpoint           the one that the run's folder means: best if it has trained, else last
    val_loss             its loss on everything that is held out, in consecutive windows; nats per token
    bits_per_char        the same in bits per character, if the model has such a measure
    last_bits_per_char   that of the last checkpoint, which unlike the best is not chosen by the held-out text
    accuracy             share of the held-out labels or hidden words that it guesses, if there are any
    test_accuracy        the same on the test part, if the data have one: unlike the held-out part it chose nothing
    trained              number of parameters that learned, fewer than all with --freeze or --lora_rank
    base_bits_per_char   after --init_from and on another text: bits on what the base's own text holds out
"""

import csv
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import train
from benchmarks.machine import cpu_model, gpu_model
from benchmarks.results import Row, grouped, plot, read_rows, table, write_rows
from extra.encoders.classes import ClassesTask
from extra.studies.program import chosen, numbers
from families import FAMILIES
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.config import option
from tinygrad_lite.errors import OptionError, UserError
from training.checkpoint import load_checkpoint
from training.cli.command_line import read_command
from training.cli.console import run_command, say
from training.cli.options import build, find_preset, list_presets, read_preset
from training.folder import RunFolder, find_checkpoint
from training.options import TrainOptions
from training.processes.processes import OneProcess
from training.start import RunSetup, read_setup
from training.task import Task

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "benchmarks" / "experiments"
RESULTS = ROOT / "docs" / "experiments"
CODE = ["train.py", *"extra gpt seq2seq text tinygrad_lite training presets".split()]  # what a result depends on
KEY = ("name", "options", "seed", "commit")
# Evaluate on everything, write no samples, and ask no teacher.
WHOLE = {"eval_iters": 0, "eval_pairs": 0, "sample_tokens": 0, "teachers": []}


@dataclass
class ExperimentOptions:
    """Everything that `python -m benchmarks.experiments` can be asked for."""

    only: str = option("", "settings to train, such as slow,fast; empty: all")
    seeds: str = option("", "seeds, such as 1,2,3; empty: those of the experiment")
    out_dir: str = option("", "keep the runs' folders in this one; empty: remove them", is_path=True)
    list: bool = option(False, "list the experiments, or the settings of one, and stop")
    dry_run: bool = option(False, "list the runs, done and missing, and stop")
    table: bool = option(False, "print the results as a Markdown table, and stop")
    plot: str = option("", "plot the results into this .svg, .png or .pdf, and stop", is_path=True)
    baseline: str = option("", "setting whose mean the plot shows as a line")


@dataclass
class Setting:
    """One setting of an experiment, as in its file."""

    name: str = option("", "how the table calls it")
    options: str = option("", "the command line of train.py")
    seeds: str = option("", "seeds, such as 1,2,3; empty: those of the experiment")
    commit: str = option("", "the commit that still had these options; empty: today's code has them")


@dataclass
class Run:
    """One training run, before it begins."""

    name: str
    options: str
    seed: int
    setup: RunSetup

    def key(self, commit: str) -> tuple[str, ...]:
        """What identifies its row, as text."""
        return self.name, self.options, str(self.seed), commit


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    options, names = read_command(
        ExperimentOptions,
        argv,
        "python -m benchmarks.experiments",
        __doc__.split("\n")[0],
        "NAME",
        about_positional="the experiment: benchmarks/experiments/NAME.toml",
    )
    if not names:
        if not options.list:
            raise OptionError("name an experiment, as in: python -m benchmarks.experiments NAME (--list lists all)")
        print("".join(f"{name:<16} {about}\n" for name, about in list_presets(EXPERIMENTS).items()), end="")
        return 0
    [name] = names
    file = find_preset(name, [EXPERIMENTS], "experiment")
    results = RESULTS / f"{file.stem}.csv"
    settings = read_settings(file, options)
    if options.table or options.plot:
        groups = grouped(read_rows(results), [setting.name for setting in settings])
        if not groups:
            raise UserError(f"{results} has no runs of these settings yet: python -m benchmarks.experiments {name}")
        if options.table:
            print(table(groups), end="")
        else:
            plot(groups, options.baseline, Path(options.plot))
        return 0
    if options.list:
        print("".join(f"{s.name:<16} {s.options} (seeds {s.seeds})\n" for s in settings), end="")
        return 0
    runs, commit = plan(settings), code_commit()
    to_do = missing(runs, read_rows(results))
    say(f"{len(runs)} runs at commit {commit}: {len(runs) - len(to_do)} done, {len(to_do)} to do")
    if options.dry_run:
        for run in runs:
            state = "missing" if run in to_do else "done"
            print(f"{state:<8} {run.name}, seed {run.seed}: python train.py {run.options} --seed {run.seed}")
        return 0
    if "dirty" in commit:
        say("warning: the code has changes that are not committed, so nobody can repeat these runs")
    return train_all(to_do, results, options.out_dir)


# --- what to run ----------------------------------------------------------------------------------------------


def read_settings(file: Path, options: ExperimentOptions) -> list[Setting]:
    """The settings in an experiment's file that the options ask for, each with its seeds.

    Raises: OptionError that names the file and what is wrong in it.
    """
    content, settings = read_preset(file, "experiment"), []
    shared = content.pop("seeds", "1")
    tables = content.pop("setting", None)
    if content or not isinstance(tables, list) or not all(isinstance(values, dict) for values in tables):
        raise OptionError(f'{file} must hold seeds = "1,2,3" and one table [[setting]] for each setting, nothing else')
    for values in tables:
        setting = build(Setting, (str(file), {"seeds": shared} | values))
        setting.seeds = options.seeds or setting.seeds
        if not setting.name or setting.name in [other.name for other in settings]:
            raise OptionError(f"{file}: every setting needs its own name, but one is called {setting.name!r}")
        settings.append(setting)
    only = chosen(options.only, [setting.name for setting in settings], "only")
    return [setting for setting in settings if setting.name in only]


def plan(settings: Sequence[Setting]) -> list[Run]:
    """All runs, the settings in turn for each seed, so that an early end leaves something of every setting.

    Settings that are no longer trained have none.

    Every command line is checked here, before the first run begins.

    Raises: OptionError that names the setting.
    """
    runs = []
    for place, setting in enumerate(setting for setting in settings if not setting.commit):
        try:
            words = [*shlex.split(setting.options), "--overwrite"]
            what = "whole numbers with commas between them, such as 1,2,3"
            for turn, seed in enumerate(map(int, numbers(setting.seeds, "--seeds", what, float.is_integer))):
                setup = read_setup([*words, "--seed", str(seed)], FAMILIES)
                runs.append((turn, place, Run(setting.name, setting.options, seed, setup)))
        except (UserError, ValueError) as error:  # ValueError: an unclosed quotation mark
            raise OptionError(f"setting {setting.name}: {error}") from None
    return [run for _, _, run in sorted(runs, key=lambda entry: entry[:2])]


def missing(runs: Sequence[Run], rows: Sequence[Row]) -> list[Run]:
    """The runs that have no row at the present commit."""
    commit, done = code_commit(), {tuple(row[column] for column in KEY) for row in rows}
    return [run for run in runs if run.key(commit) not in done]


def code_commit() -> str:
    """The latest commit that changed the training code, with "dirty" if the code was changed since."""
    try:
        latest, changes = (
            subprocess.run(["git", *words, "--", *CODE], cwd=ROOT, capture_output=True, check=True).stdout.decode()
            for words in (("log", "-1", "--format=%h"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return latest.strip() + (" dirty" if changes else "")


# --- running --------------------------------------------------------------------------------------------------


def train_all(runs: Sequence[Run], results: Path, out_dir: str, **known: str) -> int:
    """Train one run after the other, and add a row for each that succeeded; returns the exit status.

    `known` columns are not measured.
    """
    failed, took = [], {}
    Path(out_dir).mkdir(parents=True, exist_ok=True)
    for row in read_rows(results):  # for an estimate: the time of earlier runs of the setting
        took.setdefault(row["name"], []).append(float(row["seconds"]))
    for number, run in enumerate(runs):
        say(f"\nrun {number + 1} of {len(runs)}: {run.name}, seed {run.seed}{time_left(runs[number:], took)}")
        began, commit = time.monotonic(), code_commit()
        kept = Path(out_dir) / f"{run.name}-{run.seed}" if out_dir else None
        if kept and kept.exists():
            raise OptionError(f"{kept} exists already: choose another --out_dir")
        with tempfile.TemporaryDirectory(prefix="experiment-", dir=out_dir or None, ignore_cleanup_errors=True) as temp:
            run.setup.folder = RunFolder(Path(temp) / "run")
            status = train_one(run)
            if status:
                failed.append(f"{run.name}, seed {run.seed} (status {status})")
                say(f"no row: {failed[-1]}")
                continue
            row = dict(zip(KEY, run.key(commit), strict=True)) | measure(run) | known
            if kept:
                run.setup.folder.path.rename(kept)
        if code_commit() != commit:
            raise UserError("the code was changed while it trained, so this run has no row: start again")
        write_rows(results, [*read_rows(results), row])
        took.setdefault(run.name, []).append(time.monotonic() - began)
        found = f"{row['bits_per_char']} bits per character" if row["bits_per_char"] else f"accuracy {row['accuracy']}"
        say(f"{run.name}, seed {run.seed}: {found}; added to {results}")
    if failed:
        raise UserError(f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed)}")
    return 0


def time_left(runs: Sequence[Run], took: dict[str, list[float]]) -> str:
    """About how long these runs will take; empty if nothing is known."""
    known = [seconds for each in took.values() for seconds in each]
    if not known:
        return ""
    seconds = sum(statistics.mean(took.get(run.name, known)) for run in runs)
    return f"; about {seconds / 60:,.0f} minutes left"


def train_one(run: Run) -> int:
    """Train as a child process; returns its exit status. Whatever ends this process ends the child first."""
    given = [*shlex.split(run.options), "--seed", str(run.seed), "--out_dir", str(run.setup.folder.path)]
    command = [sys.executable, str(ROOT / "train.py"), *given]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:  # stdout: samples
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise


def measure(run: Run) -> Row:
    """The columns of a finished run's row, except its key."""
    setup, folder = run.setup, run.setup.folder
    chosen = find_checkpoint(folder.path)
    trained = setup.family.read(chosen)
    told = {name: getattr(trained.config, name) for name in trained.config.shape()}  # the data decide some of them
    options = replace(
        setup.options, **{name: value for name, value in (told | WHOLE).items() if hasattr(setup.options, name)}
    )
    task = setup.family.make_task(options, trained.tokenizer)
    with open(folder.metrics, encoding="utf-8", newline="") as file:
        logged = [row for row in csv.DictReader(file) if row["loss"]]
    steps = int(logged[-1]["step"]) if logged else 0
    losses = [float(row["loss"]) for row in logged if int(row["step"]) > 0.9 * steps]
    seconds = training_seconds(logged, task)
    val_loss, measures = evaluate(setup, task, chosen)
    return {
        "processor": gpu_model() if options.device == "cuda" else cpu_model(),
        "workers": str(options.workers),
        "steps": str(steps),
        "seconds": f"{seconds:.3f}",
        "seconds_per_step": f"{seconds / max(steps, 1):.6f}",
        "parameters": str(trained.make_model().num_parameters()),
        "train_loss": f"{statistics.mean(losses):.4f}" if losses else "",
        "checkpoint": chosen.stem,
        "val_loss": f"{val_loss:.4f}",
        "bits_per_char": measures["bits_per_char"],
        "last_bits_per_char": evaluate(setup, task, folder.last)[1]["bits_per_char"],
        "best_step": str(load_checkpoint(folder.best).step),
        "accuracy": measures["accuracy"],
        "test_accuracy": on_test(setup, task, chosen),
        "trained": str(sum(array.size for array in load_checkpoint(chosen).weights.values())),
        "base_bits_per_char": on_base(setup, options, task, chosen),
    }


def on_test(setup: RunSetup, task: Task, checkpoint: Path) -> str:
    """The accuracy on the test part, which the task then has in place of what it held out; empty if there is none."""
    if not isinstance(task, ClassesTask):
        return ""
    task.hold_out_test()
    return evaluate(setup, task, checkpoint)[1]["accuracy"]


def on_base(setup: RunSetup, options: TrainOptions, task: Task, checkpoint: Path) -> str:
    """Bits per character on the text from which the weights of --init_from come; empty if it is the run's own text."""
    base = setup.trained
    if not base or not base.dataset or base.corpus_sha256 == task.corpus_sha256 or not hasattr(options, "replay"):
        return ""
    task = setup.family.make_task(
        replace(options, dataset=base.dataset, text=[], pairs="", separator="", replay=None), base.tokenizer
    )
    same = task.corpus_sha256 == base.corpus_sha256  # it may have been the user's own text
    return evaluate(setup, task, checkpoint)[1]["bits_per_char"] if same else ""


def training_seconds(logged: Sequence[Row], task: Task) -> float:
    """How long the steps took: a row of metrics.csv has the speed in tokens per second since the row before it."""
    seconds, before = 0.0, 0
    for row in logged:
        step = int(row["step"])
        seconds += sum(map(task.target_tokens, range(before, step))) / float(row["tokens_per_second"])
        before = step
    return seconds


def evaluate(setup: RunSetup, task: Task, checkpoint: Path) -> tuple[float, Row]:
    """A checkpoint's loss on all that is held out, and its other measures; empty if the task has none."""
    model = setup.family.read(checkpoint).make_model(setup.options.device)
    val_loss = train.evaluate(task, model, OneProcess())  # which ends in the mode of training
    with no_grad():
        measures = task.report(model.eval(), val_loss).measures
    return val_loss, {
        name: f"{measures[name]:.4f}" if name in measures else "" for name in ("bits_per_char", "accuracy")
    }


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that no folder is left behind
    run_command("experiments", main)
