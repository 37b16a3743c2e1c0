"""Texts that ask for a value far behind: what they hold, that attention learns them, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from docs.course import check

recall = check.load(Path(__file__).parents[3] / "docs/course/21-beyond/recall.py")
KINDS, SYMBOLS, texts = recall.KINDS, recall.SYMBOLS, recall.texts


@pytest.mark.parametrize("distance", [6, 7])
def test_the_answer_stands_behind_the_same_key_at_this_distance(distance):
    ids, answers = texts(np.random.default_rng(distance), 200, 3, distance)
    assert ids.shape == (200, distance + 5)
    where = ids.shape[1] - 1 - distance
    assert (ids[:, where] == ids[:, -1]).all()
    assert (ids[:, where + 1] == answers).all()
    assert ((answers >= SYMBOLS) & (answers < 2 * SYMBOLS)).all()
    assert ((ids < SYMBOLS).sum(1) == 4).all()  # three keys, and one of them again
    assert ((ids == ids[:, -1:]).sum(1) == 2).all()


def test_every_mixer_is_tried_and_attention_finds_the_value(workplace):
    small = ["--pairs", "1", "--n_embd", "32", "--csv", "a.csv"]
    assert recall.main([*small, "--distances", "4", "--mixers", "attention", "--steps", "200"]) == 0
    assert float(Path("a.csv").read_text("utf-8").rpartition(",")[2]) > 0.9
    assert recall.main([*small, "--distances", "4,6", "--steps", "5"]) == 0
    rows = [line.split(",") for line in Path("a.csv").read_text("utf-8").splitlines()]
    assert [row[0] for row in rows[1:]] == [*KINDS]
    assert all(0 <= float(share) <= 1 for row in rows[1:] for share in row[3:])
