"""Which tests run which lines, and how single tests are run: a plugin of pytest, and a trace function."""

import hashlib
import importlib
import json
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

from tests.mutation.mutants import ROOT
from tests.mutation.planting import in_a_child


def tracer(found: dict[str, set[int]]) -> Callable:
    """A function for `sys.settrace` that adds, for the files in `found`, the lines that run.

    A function whose lines have all run is left alone, and one of another file always.
    """
    missing: dict[CodeType, set[int]] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Callable | None:
        code = frame.f_code
        if (lines := found.get(code.co_filename)) is None:
            return None
        if (rest := missing.get(code)) is None:
            rest = missing[code] = {line for _, _, line in code.co_lines() if line}
        lines.add(frame.f_lineno)
        rest.discard(frame.f_lineno)
        return trace if rest else None

    return trace


class Session:
    """A plugin of pytest: when the tests are collected, `work(session)` is done instead of running them all."""

    def __init__(self, work: Callable[["Session"], object]) -> None:
        self.work, self.result = work, None
        self.items: dict[str, pytest.Item] = {}
        self.outcomes: set[str] = set()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.result = self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.add(report.outcome)

    def first_failure(self, tests: dict[str, float]) -> str:
        """The first that fails of these tests, empty if none does; one that takes too long ends this process.

        A test may take ten seconds, and ten times the seconds that are given, on the processor.
        """
        items = [self.items[test] for test in tests if test in self.items]
        for item, following in zip(items, [*items, None][1:], strict=True):
            signal.setitimer(signal.ITIMER_PROF, 10 + 10 * tests[item.nodeid])
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if "failed" in self.outcomes:
                return item.nodeid
        return ""

    def trace(self, test: str, files: list[str]) -> list | None:
        """The seconds that a test takes, and the lines of each file that it runs; None if it fails or is skipped."""
        lines = {str(ROOT / path): set() for path in files}
        began = time.perf_counter()
        threading.settrace(tracer(lines))
        sys.settrace(tracer(lines))
        self.first_failure({test: 60})
        sys.settrace(None)
        ran = {path: sorted(lines[str(ROOT / path)]) for path in files if lines[str(ROOT / path)]}
        return [round(time.perf_counter() - began, 4), ran] if self.outcomes == {"passed"} else None

    def traced(self, files: list[str], cache: Path) -> dict[str, list]:
        """`trace` of every test, each in its own child: it finds no cache filled, and passes alone.

        What is found for a file of tests is kept until that file or one of the product's changes.
        """
        product = b"".join((ROOT / path).read_bytes() for path in files)
        by_file, found = defaultdict(list), {}
        for test, item in self.items.items():
            by_file[item.path].append(test)
        for path, tests in by_file.items():
            key = hashlib.sha256(product + path.read_bytes() + str(path).encode()).hexdigest()
            if not (kept := cache / f"{key}.json").exists():
                of_file = {test: in_a_child(lambda test=test: self.trace(test, files), 600) for test in tests}
                kept.write_text(json.dumps(of_file), encoding="utf-8")
            found |= json.loads(kept.read_text(encoding="utf-8"))
        return {test: about for test, about in found.items() if about and test in self.items}


def run_on_import(files: list[str]) -> dict[str, list[int]]:
    """The lines of each file that run when the files are imported, in functions too."""
    found = {str(ROOT / path): set() for path in files}
    sys.settrace(tracer(found))
    for path in files:
        importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    sys.settrace(None)
    return {path: sorted(found[str(ROOT / path)]) for path in files}


def run_pytest(arguments: list[str], work: Callable[[Session], object]) -> object:
    """Collect tests, and return the result of the work; None if they cannot be collected."""
    session = Session(work)
    options = "-n 0 -p no:terminal -p no:cacheprovider -W ignore::pytest.PytestAssertRewriteWarning".split()
    pytest.main([*options, *arguments], plugins=[session])
    return session.result
