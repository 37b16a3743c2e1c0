"""What the tests that try to break things share: their findings are printed at the end of the run."""

import pytest

from tinygrad_lite.cli.errors import CorpusError
from tinygrad_lite.corpora import fetch

FINDINGS = pytest.StashKey[list]()


@pytest.fixture
def report(request):
    """Call it with a line that says how often something was tried and what came of it; shown after all tests."""
    findings = request.config.stash.setdefault(FINDINGS, [])

    def add(line):
        findings.append(line)

    return add


@pytest.fixture
def no_network(monkeypatch):
    """No network, no apt-get: what a file makes the program ask for is not to be had."""

    def unreachable(what, *rest):
        raise CorpusError("there is no network here")

    monkeypatch.setattr(fetch, "debian_files", unreachable)
    monkeypatch.setattr(fetch, "https_bytes", unreachable)


def pytest_terminal_summary(terminalreporter, config):
    """Print what was found, below pytest's own summary."""
    findings = config.stash.get(FINDINGS, [])
    if findings:
        terminalreporter.section("reliability")
        for line in findings:
            terminalreporter.line(line)
