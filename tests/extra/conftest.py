"""What the tests of the shelf add to the fixtures of all."""

import io
import sys

import pytest

from extra.studies import scores
from tests import places

places.SCRIPTS.append(scores)


def package(module: str, name: str = ""):
    """A fixture that is this package: whatever takes it is skipped where the package is missing."""
    return pytest.fixture(scope="session", name=name or module)(lambda: pytest.importorskip(module))


torch, transformers, peft = map(package, ("torch", "transformers", "peft"))
tokenizers, gguf, jinja2 = map(package, ("tokenizers", "gguf", "jinja2"))
matplotlib, sacrebleu, image = package("matplotlib"), package("sacrebleu"), package("PIL.Image", "image")


@pytest.fixture
def ran(capsys):
    """A function: what a command writes to stdout and stderr, `out` and `err`; it must end well."""

    def run(main, *words):
        capsys.readouterr()  # what was written before
        assert main([str(word) for word in words]) == 0
        return capsys.readouterr()

    return run


@pytest.fixture
def typed(monkeypatch):
    """A function: this text is what stdin gives."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
