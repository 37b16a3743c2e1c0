"""Mark the answers of a class: every submission, chapter by chapter, in a table.

    python docs/course/mark.py submissions              each folder or zip in it is one person's docs/course/answers/
    python docs/course/mark.py submissions --out marks.csv

A submission's code is run, as the user who marks, each chapter in a process of its own, which is ended after
`--seconds`. So use an account that has nothing to lose, or a container.
"""

import csv
import json
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from check import CAPSTONE, COURSE, chapters

from tinygrad_lite.config import option
from tinygrad_lite.errors import UserError, counted
from training.cli.command_line import read_command
from training.cli.console import run_command, say

MAX_SIZE = 1_000_000  # bytes of answers to a chapter

# What marks one chapter: it prints which answers are right, and nothing that the answers print.
PROGRAM = """
import contextlib, json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import check
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
    right = [one.is_right for one in check.check(Path(sys.argv[2]), Path(sys.argv[3]).resolve())]
print(json.dumps(right))
"""


@dataclass
class MarkOptions:
    """The options of marking."""

    seconds: float = option(60.0, "time for each chapter of each submission", unit="seconds", above=0.0)
    out: str = option("", "file for the same table as CSV", is_path=True)


def right_answers(folder: Path, answers: bytes, seconds: float) -> list[bool] | str:
    """Whether each exercise of a chapter is answered rightly, or in words why they could not be marked."""
    command = [sys.executable, "-c", PROGRAM, str(COURSE), str(folder), "answers.py"]
    with tempfile.TemporaryDirectory() as place:  # where the answers may write
        Path(place, "answers.py").write_bytes(answers)
        try:
            done = subprocess.run(
                command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return f"not finished after {seconds:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def answers_in(submission: Path, chapter: str) -> bytes | None:
    """The answers to a chapter in a folder or a zip file, of which nothing else is unpacked."""
    name = f"{chapter}/exercise.py"
    if submission.is_dir():
        file = next(iter(sorted(submission.rglob(name))), None)
        return file and file.read_bytes()
    with zipfile.ZipFile(submission) as archive:
        found = [info for info in archive.infolist() if f"/{info.filename}".endswith(f"/{name}")]
        if found and found[0].file_size > MAX_SIZE:
            raise zipfile.BadZipFile(f"{found[0].filename} is larger than a megabyte")
        return archive.read(found[0]) if found else None


def mark(submission: Path, seconds: float) -> dict[str, str]:
    """The marks of one submission, such as "2 of 3", by chapter, if it has answers to it."""
    marks = {}
    for number, folder in (chapters() | {CAPSTONE: COURSE / CAPSTONE}).items():
        if answers := answers_in(submission, folder.name):
            right = right_answers(folder, answers, seconds)
            marks[str(number)] = f"{sum(right)} of {len(right)}" if isinstance(right, list) else "0"
            if isinstance(right, str):
                say(f"{submission.name}, chapter {number}: {right}")
    return marks


def main(argv: list[str]) -> int:
    """Run the command line and return the exit status."""
    options, [name] = read_command(
        MarkOptions, argv, "python docs/course/mark.py", "Mark the answers of a class.", "FOLDER", "submissions"
    )
    if not Path(name).is_dir():
        raise UserError(f"{name} is not a folder of submissions: name one")
    table = {}
    for path in sorted(Path(name).iterdir()):
        if path.is_dir() or path.suffix == ".zip":
            try:
                table[path.name] = mark(path, options.seconds)
            except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error) as error:
                say(f"{path.name} is not a zip file that can be read ({error}): left out")
    used = [str(number) for number in (*chapters(), CAPSTONE) if any(str(number) in marks for marks in table.values())]
    if not used:
        one = f"{chapters()[1].name}/exercise.py"
        raise UserError(f"there are no answers in {name}: each folder or zip file in it must hold some, such as {one}")
    rows = [["", *used], *([person, *(marks.get(number, "") for number in used)] for person, marks in table.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if options.out:
        try:
            with open(options.out, "w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
        except OSError as error:
            raise UserError(f"--out {options.out} cannot be written: {error.strerror}") from None
        say(f"{counted(len(table), 'submission')} in {options.out}")
    return 0


if __name__ == "__main__":
    run_command("mark", main)
