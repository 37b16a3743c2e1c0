"""Fixtures of the reliability tests, whose findings are printed at the end of the run."""

import random

import pytest

from tests.reliability.mutations import Outcomes, harmless
from tests.reliability.tiny_models import KINDS, make_model
from tinygrad_lite.errors import UserError


@pytest.fixture
def report(request):
    """Call it with a line that says how often something was tried and with what result; printed after all tests."""
    return lambda line: request.node.user_properties.append(("finding", line))


@pytest.fixture
def tried_many(workplace, report, capsys):
    """A function that lets broken files be used, and asserts how many of them are, and how many are refused."""

    def try_all(count, seed, what, attempt, *, allowed=UserError, used=0.0, refusals=(), refused=0.25):
        """`attempt(rng)` makes a file and returns the function that uses it."""
        rng, outcomes = random.Random(seed), Outcomes()
        with harmless(workplace):
            for number in range(count):
                outcomes.tried(number, attempt(rng), allowed)
        capsys.readouterr()
        assert outcomes["used"] > used * count
        assert sum(outcomes[name] for name in refusals or [allowed.__name__]) > refused * count or not refused
        report(f"hostile files: {count:,} {what} (seed {seed}): {outcomes}")

    return try_all


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The checkpoints of tiny models, by kind of tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: make_model(kind, folder) for kind in KINDS}


def pytest_terminal_summary(terminalreporter):
    """Print the findings below pytest's own summary; tests may have run in other processes."""
    tests = [test for tests in terminalreporter.stats.values() for test in tests if getattr(test, "when", "") == "call"]
    findings = [line for test in tests for name, line in test.user_properties if name == "finding"]
    if findings:
        terminalreporter.section("reliability")
        for line in findings:
            terminalreporter.line(line)
