"""Fixtures of the reliability tests, whose findings are printed at the end of the run."""

import pytest

from tests.reliability.tiny_models import available_kinds, make_model
from tinygrad_lite.errors import CorpusError
from workshop.corpora import fetch


@pytest.fixture
def report(request):
    """Call it with a line that says how often something was tried and with what result; printed after all tests."""
    return lambda line: request.node.user_properties.append(("finding", line))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The checkpoints of tiny models, by kind of tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: make_model(kind, folder) for kind in available_kinds()}


@pytest.fixture
def no_network(monkeypatch):
    """No network and no apt-get: every download fails."""

    def unreachable(what, *rest):
        raise CorpusError("there is no network here")

    monkeypatch.setattr(fetch, "debian_files", unreachable)
    monkeypatch.setattr(fetch, "https_bytes", unreachable)


def pytest_terminal_summary(terminalreporter):
    """Print the findings below pytest's own summary; tests may have run in other processes."""
    tests = [test for tests in terminalreporter.stats.values() for test in tests if getattr(test, "when", "") == "call"]
    findings = [line for test in tests for name, line in test.user_properties if name == "finding"]
    if findings:
        terminalreporter.section("reliability")
        for line in findings:
            terminalreporter.line(line)
