"""Checkpoints of several steps are kept."""

from types import SimpleNamespace

from extra.log import ShelfLog
from training import log
from training.folder import RunFolder


def test_the_latest_checkpoints_are_kept(tmp_path, monkeypatch):
    run = RunFolder(tmp_path)
    monkeypatch.setattr(log, "save_checkpoint", lambda path, checkpoint: path.write_bytes(checkpoint))
    for step, number in ((0, 2), (50, 2), (100, 2), (150, 2), (200, 0)):
        output = ShelfLog.__new__(ShelfLog)  # without a model
        output.folder, output.options = run, SimpleNamespace(keep=number)
        output.write_last(step, b"%d" % step)
    assert [path.name for path in run.kept()] == ["step-00000100.safetensors", "step-00000150.safetensors"]
    assert [path.read_bytes() for path in run.kept()] == [b"100", b"150"]
    run.begin({})
    assert run.kept() == []
