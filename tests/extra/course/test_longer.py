"""The loss in windows longer than those of training: the numbers of longer contexts, and what is refused."""

from pathlib import Path

import pytest

import sample
from docs.course import check
from tests.gpt.saved_models import saved_gpt
from tests.tiny_runs import made_up_text
from text.tokenizers.char import CharTokenizer

longer = check.load(check.chapters()[14] / "longer.py")
TOKENIZER = CharTokenizer.train(made_up_text())
POSITIONS = ["none", "sinusoidal", "rotary", "index", "binary", "alibi", "shaw"]


@pytest.mark.usefixtures("workplace")
def test_every_kind_of_positions_is_read_beyond_its_context_but_learned_ones(ran):
    for kind in [*POSITIONS, "learned"]:
        saved_gpt(Path(kind), TOKENIZER, positions=kind, block_size=8)
    Path("other.txt").write_text(made_up_text(60, seed=2), encoding="utf-8")
    out, err = ran(longer.main, *POSITIONS, "learned", "--text", "other.txt", "--times", "1,3")
    assert "learned has learned positions, and none beyond block_size: left out" in err
    rows = {line.split()[0]: [float(bits) for bits in line.split()[1:]] for line in out.splitlines()[1:]}
    assert list(rows) == POSITIONS
    assert all(0 < bits < 12 for row in rows.values() for bits in row)
    whole = Path("other.txt").read_text("utf-8")
    Path("windows.txt").write_text(whole[: (len(whole) - 1) // 8 * 8 + 1], encoding="utf-8")
    bits = float(ran(sample.main, "rotary", "--score", "windows.txt").out.split()[0])
    assert rows["rotary"][0] == pytest.approx(bits, rel=0.02)  # which also divides by the first character
