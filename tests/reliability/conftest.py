"""What the tests that try to break things share: their findings are printed at the end of the run."""

import pytest

FINDINGS = pytest.StashKey[list]()


@pytest.fixture
def report(request):
    """Call it with a line that says how often something was tried and what came of it; shown after all tests."""
    findings = request.config.stash.setdefault(FINDINGS, [])

    def add(line):
        findings.append(line)

    return add


def pytest_terminal_summary(terminalreporter, config):
    """Print what was found, below pytest's own summary."""
    findings = config.stash.get(FINDINGS, [])
    if findings:
        terminalreporter.section("reliability")
        for line in findings:
            terminalreporter.line(line)
