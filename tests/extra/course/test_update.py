"""The singular values of what training changed."""

from pathlib import Path

import numpy as np
import pytest

from docs.course import check
from tests.gpt.saved_models import TEXT, saved_gpt
from tests.tiny_runs import sampled, table
from text.tokenizers.byte import ByteTokenizer
from training.checkpoint import load_checkpoint, save_checkpoint

update = check.load(check.chapters()[18] / "update.py")


@pytest.fixture
def base(workplace):
    Path("text.txt").write_text(TEXT * 3, encoding="utf-8")
    return saved_gpt(Path("base.safetensors"), ByteTokenizer())


def changed(base, rank):
    """The base with a random change of this rank, whose singular values are all 1, in every matrix of its blocks."""
    checkpoint, rng = load_checkpoint(base), np.random.default_rng(1)
    for name, array in checkpoint.weights.items():
        if name.startswith("blocks.") and array.ndim == 2:
            u, v = (np.linalg.qr(rng.normal(size=(size, rank)))[0] for size in array.shape)
            checkpoint.weights[name] = (array + u @ v.T).astype(np.float32)
    save_checkpoint(Path("tuned.safetensors"), checkpoint)
    return Path("tuned.safetensors")


def test_a_change_of_rank_four_needs_four_singular_values(base, capsys):
    found = table(capsys, update, base, changed(base, 4), "--text", "text.txt", "--ranks", "1,2,4,8")
    assert [row[0] for row in found.values()] == ["0.0%", "25.0%", "50.0%", "100.0%", "100.0%", "100.0%"]
    bits = {rank: row[2] for rank, row in found.items()}
    assert bits["4"] == bits["8"] == bits["all"]
    assert len({bits["0"], bits["1"], bits["2"], bits["4"]}) == 4


def test_all_of_the_update_is_the_tuned_model_and_none_the_base(base, capsys):
    found = table(capsys, update, base, changed(base, 2), "--text", "text.txt")
    for rank, path in (("0", base), ("all", "tuned.safetensors")):
        bits = float(sampled(capsys, path, "--score", "text.txt").out.split()[0])
        assert float(found[rank][2]) == pytest.approx(bits, abs=1e-4)


def test_the_closest_matrix_of_a_rank():
    matrix = np.diag([3.0, 2.0, 1.0])[:, :2]
    change = update.Update.of(matrix)
    np.testing.assert_allclose(change.cut(1), np.diag([3.0, 0, 0])[:, :2], atol=1e-12)
    np.testing.assert_allclose(change.cut(2), matrix, atol=1e-12)
    assert change.share(1) == pytest.approx(9 / 13)
