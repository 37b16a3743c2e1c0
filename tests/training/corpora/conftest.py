"""What stands in for the web and the cache, for the tests of what is downloaded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tinygrad_lite.errors import CorpusError
from training.corpora import fetch


@pytest.fixture
def web(monkeypatch) -> SimpleNamespace:
    """All that is downloaded comes from its `files`, by their addresses; `asked` is what it was asked for."""
    made = SimpleNamespace(files={}, asked=[])

    def https_bytes(url: str, open_url: object = None) -> bytes:
        made.asked.append(url)
        if url not in made.files:
            raise CorpusError(f"{url} answered 404 Not Found")
        return made.files[url]

    monkeypatch.setattr(fetch, "https_bytes", https_bytes)
    return made


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of the cache, which does not exist yet."""
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


@pytest.fixture
def write(tmp_path):
    """Writes a file; gives its path."""

    def write(name: str, content: str | bytes) -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return str(tmp_path / name)

    return write


@pytest.fixture
def offline(cache, no_network) -> None:
    """An empty cache and, but for tests of the network, nothing to fill it from."""
