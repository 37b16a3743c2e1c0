"""What stands in for the web, for the tests of what is downloaded."""

import pytest

from tinygrad_lite.errors import CorpusError
from workshop.corpora import fetch


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
