"""What stands in for the web and the cache, for the tests of what is downloaded."""

from pathlib import Path

import pytest

from tinygrad_lite.errors import CorpusError
from training.corpora import fetch


class Web:
    """Gives the `files`, by their addresses, and notes in `asked` what it is asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def https_bytes(self, url: str, open_url: object = None) -> bytes:
        self.asked.append(url)
        if url not in self.files:
            raise CorpusError(f"{url} answered 404 Not Found")
        return self.files[url]


@pytest.fixture
def web(monkeypatch) -> Web:
    """All that is downloaded comes from here."""
    made = Web()
    monkeypatch.setattr(fetch, "https_bytes", made.https_bytes)
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
