"""The environment of a training run: its folder, metrics.csv, the signals that stop it, the memory allocator.

Nothing here depends on a model or affects a result.
"""

import ctypes
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from tinygrad_lite.device import get_device, why_no_cuda
from tinygrad_lite.errors import CheckpointError, OptionError, counted
from tinygrad_lite.precision import check_precision
from training.checkpoint import describe, fact_in, load_checkpoint, missing_folder, no_checkpoint, save_file
from training.cli.console import say
from training.cli.files import MAX_SETTINGS, POSIX, TEMPORARY, text_of

# The columns of metrics.csv of every run; those that the task measures follow.
METRICS = ("step", "loss", "learning_rate", "grad_norm", "tokens_per_second", "val_loss")
# The signals that stop a run: Ctrl-C, `kill`, and the end of a terminal, which Windows does not signal.
STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
MAX_DEFAULT_WORKERS = 4  # processes, unless the user gives a number
CPUS = Path("/sys/devices/system/cpu")  # where Linux describes the processor
STEP = re.compile("[0-9]{1,100}")
SAMPLE_HEADING = re.compile(r"^=== step ([0-9][0-9,]{0,100}): ", re.MULTILINE)


def tune_memory() -> bool:
    """Let the C library keep freed memory instead of returning it to the system; True if that worked.

    Every training step allocates and frees the same large arrays. By default glibc gets each of them from the kernel,
    which zeroes every page first. Keeping the memory makes the default run about a quarter faster.
    It affects the whole process, so only the scripts call it, never `import tinygrad_lite`. Does nothing outside glibc.
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # the names M_... in malloc.h
    settings = ((mmap_max, 0), (trim_threshold, 2**31 - 1), (top_pad, 64 << 20))
    return all(ask_glibc("mallopt", setting, value) for setting, value in settings)


def release_memory() -> bool:
    """Return freed memory to the system once, when it will not be needed again soon."""
    return ask_glibc("malloc_trim", 0)


def ask_glibc(function: str, *numbers: int) -> bool:
    """Call a function of the C library; False if it fails, or if this library lacks it."""
    try:
        return bool(getattr(ctypes.CDLL(None), function)(*numbers))
    except (OSError, AttributeError, TypeError):
        return False


class StopRequest:
    """Within this context Ctrl-C, SIGTERM and SIGHUP only set a flag, so that the loop can save before it ends.

    A second Ctrl-C stops at once, as usual. A second SIGTERM does not, since `timeout` sends two: to a process and to
    its group. SIGHUP stays ignored if it was, as under `nohup`.

    Args:
        lost: says what is lost if a run stops at once.
    """

    def __init__(self, lost: Callable[[], str] = str) -> None:
        self.lost = lost
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in STOPPING:
            if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt(self.lost())
        self.signal = self.signal or signal.Signals(number)


class RunFolder:
    """The folder of one run: its checkpoints, metrics.csv, samples.txt, and options.json for people and `--resume`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.last = self.path / "last.safetensors"
        self.best = self.path / "best.safetensors"
        self.metrics = self.path / "metrics.csv"
        self.samples = self.path / "samples.txt"
        self.options = self.path / "options.json"
        self.columns = METRICS  # of metrics.csv
        # By file: the position of text that could not be written yet, and the text.
        self.waiting: dict[Path, tuple[int, str]] = {}

    def lost(self, steps: int, resume: str) -> str:
        """What a run that ends at once, after this number of steps, loses, and the command that continues it."""
        if (saved := fact_in(self.last, "step")) is None:
            return "before the first checkpoint"
        return f"and lost {counted(steps - saved, 'step')}; continue from step {saved:,} with:\n{resume}"

    def refuse_if_used(self) -> None:
        """Raise OptionError if the folder holds a run that a new one would destroy."""
        if self.last.exists() or self.best.exists():
            what = "a run"
            with suppress(CheckpointError):
                last = load_checkpoint(self.last)  # saved before its evaluation, whose loss only `best` records
                what = describe(last)
                best = load_checkpoint(self.best)
                what = describe(replace(last, best_loss=best.best_loss, best_step=best.best_step))
            advice = "continue it with --resume, start again with --overwrite, or choose another --out_dir"
            raise OptionError(f"{self.path} already holds {what}: {advice}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder; within this context no other process can train in it.

        Raises: OptionError if another run uses it, or if it cannot be made.
        """
        for file in (self.path / "lock", self.metrics, self.samples):
            if file.is_symlink():
                raise OptionError(f"{file} is a link that leads out of the run's folder: remove it")
            if file.exists() and not file.is_file():
                raise OptionError(f"{file} is not a regular file: remove it")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / "lock", "ab")  # noqa: SIM115 (closed by the `with` below)
        except OSError as error:
            raise OptionError(f"--out_dir {self.path} cannot be written ({error.strerror}): choose another") from None
        with file:  # the lock ends when the file is closed, even if the process is killed
            try:
                if POSIX:
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                else:  # Windows locks bytes; the file is empty, but its first byte can still be locked
                    import msvcrt

                    msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except (BlockingIOError, PermissionError):
                reason = f"another run is training in {self.path}: wait for it or choose another --out_dir"
                raise OptionError(reason) from None
            except OSError as error:
                reason = f"--out_dir {self.path} is on a drive without file locks ({error.strerror}): choose another"
                raise OptionError(reason) from None
            for half_written in self.path.glob(TEMPORARY):  # by a run that was killed while it saved
                half_written.unlink(missing_ok=True)
            try:
                yield
            finally:
                if not POSIX:  # Windows may release the lock of a closed file late
                    msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

    def begin(self, options: dict[str, Any]) -> None:
        """Start a new run: remove the files of an older one, note the options, write the head of metrics.csv."""
        average = self.path / "average.safetensors"  # which version 0.3.0 wrote
        for old in (self.last, self.best, average, *self.kept(), self.metrics, self.samples, self.options):
            old.unlink(missing_ok=True)
        self.note_options(options)
        self.rewind(0)

    def note_options(self, options: dict[str, Any]) -> None:
        """Write options.json."""
        text = json.dumps(options, indent=2, sort_keys=True, ensure_ascii=False)
        # A file name that is not UTF-8 is written with JSON's escapes, such as \udcfc, and read back unchanged.
        save_file(self.options, (text + "\n").encode("utf-8", "backslashreplace"))

    def noted_options(self) -> dict[str, Any]:
        """The contents of options.json; empty if it is missing or damaged."""
        try:
            noted = json.loads(text_of(self.options, MAX_SETTINGS))
        except (OSError, ValueError, RecursionError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def rewind(self, step: int) -> None:
        """Leave the head of metrics.csv, and the rows and samples that the run does not write again from `step` on."""
        rows = [self.columns]
        if self.metrics.exists() and (text := text_of(self.metrics, errors="replace")):
            header, *lines = [line.split(",") for line in text.removesuffix("\n").split("\n")]
            if header[0] == "step":  # keep what an older version measured, too
                self.columns = rows[0] = tuple(dict.fromkeys((*header, *self.columns)))
            for row in (dict(zip(header, line, strict=False)) for line in lines):
                number = int(row["step"]) if STEP.fullmatch(row.get("step", "")) else step + 1
                # Row `step` of an evaluation is written again, row `step` of an update is not.
                if number < step or (number == step and row.get("loss")):
                    rows.append(tuple(row.get(name, "") for name in self.columns))
        save_file(self.metrics, "".join(",".join(row) + "\n" for row in rows).encode())
        if self.samples.exists():
            text = text_of(self.samples, errors="replace")
            headings = SAMPLE_HEADING.finditer(text)
            end = next((h.start() for h in headings if int(h[1].replace(",", "")) >= step), len(text))
            save_file(self.samples, text[:end].encode("utf-8"))

    def log(self, **values: float) -> None:
        """Append a row to metrics.csv; missing values stay empty."""
        row = [f"{values[name]:.6g}" if name in values else "" for name in self.columns]
        row[0] = str(int(values["step"]))
        self.add(self.metrics, ",".join(row) + "\n")

    def add(self, path: Path, text: str) -> None:
        """Append text to a file, or keep it until the file can be written."""
        end, before = self.waiting.get(path) or (path.stat().st_size if path.exists() else 0, "")
        self.waiting[path] = (end, before + text)
        with suppress(CheckpointError):
            self.write_waiting()

    def write_waiting(self) -> None:
        """Append the waiting texts to metrics.csv and samples.txt.

        Raises: CheckpointError if a file cannot be written; it is then unchanged, and its text keeps waiting.
        """
        for path, (end, text) in list(self.waiting.items()):
            try:
                with open(path, "a", encoding="utf-8", newline="\n") as file:
                    file.truncate(end)  # remove a partial row of an earlier attempt
                    file.write(text)
            except OSError as error:
                with suppress(OSError):
                    os.truncate(path, end)
                advice = missing_folder(path) or f" ({error.strerror}): free some space"
                raise CheckpointError(f"cannot write {path}{advice}") from None
            del self.waiting[path]

    def kept(self) -> list[Path]:
        """The checkpoints of single evaluations, kept besides last and best; oldest first."""
        return sorted(self.path.glob("step-*.safetensors"))


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that a path means: of a folder, the best one of the newest run anywhere under it.

    If no evaluation after the first step has chosen a best one yet, the last one; and if the newest file is none of
    those that a run keeps writing, that file.

    Raises: CheckpointError if there is none.
    """
    if path.is_file():
        return path
    found = sorted(path.glob("**/*.safetensors"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    if not found:
        raise no_checkpoint(path)
    newest, run = found[-1], RunFolder(found[-1].parent)
    if newest not in (run.last, run.best, *run.kept()):
        return newest
    has_trained = run.best in found and fact_in(run.best, "step") != 0
    return run.best if has_trained or run.last not in found else run.last


def available_cores() -> int:
    """The number of cores that this process may use; taskset or a container may restrict it.

    Hardware threads of one core count once: they share its arithmetic units, which one process keeps busy.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cores = len(set(map(core_of, affinity(0)))) if affinity else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        # Linux: CPU microseconds allowed per period, and the period: "200000 100000" for two cores; or "max".
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, round(int(allowed) / int(period))))
    return cores


def core_of(thread: int) -> str:
    """The core of a hardware thread, which Linux calls a CPU: the list of its threads; if unknown, this one alone."""
    with suppress(OSError):
        return (CPUS / f"cpu{thread}/topology/core_cpus_list").read_text(encoding="ascii")
    return str(thread)


def choose_device(options: Any) -> str:
    """The device that an option names; says which one "auto" chooses.

    Raises: DeviceError if it is not there; OptionError if it has no such --dtype.
    """
    device = get_device(options.device).name
    if options.device == "auto":
        say(f"--device auto chooses {device}" + (f" ({why_no_cuda()})" if device == "cpu" else ""))
    check_precision(options.dtype, device)
    return device
