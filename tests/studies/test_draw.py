"""Pictures of a GPT: what is drawn is what the model computes, for every kind of positions and heads."""

from pathlib import Path

import numpy as np
import pytest

import sample
from gpt.inside import look_inside
from gpt.trained import load_trained
from studies import draw
from tests.gpt.saved_models import saved_gpt
from tinygrad_lite.errors import UserError
from workshop.tokenizers.char import CharTokenizer

TEXT = "Habe nun, ach! Philosophie, Juristerei und Medizin,\nund leider auch Theologie durchaus studiert.\n"


@pytest.fixture
def make(workplace):
    """A function that writes a checkpoint with random weights into the folder `run`."""
    return lambda **more: saved_gpt(Path("run/last.safetensors"), CharTokenizer.train(TEXT), n_head=4, **more)


@pytest.mark.parametrize("more", [{}, {"positions": "rotary", "n_kv_head": 2, "qk_norm": True}])
def test_the_attention_drawn_is_that_of_the_model(make, more):
    make(**more)
    assert draw.main(["attention", "run", "--text", "Habe nun", "--layer", "2", "--out", "a.npz"]) == 0
    found, trained = np.load("a.npz"), load_trained(Path("run"))
    inside = look_inside(trained.make_model(), trained.tokenizer.encode("Habe nun"))
    np.testing.assert_array_equal(found["weights"], inside.attention[1:])
    assert "".join(found["keys"]) == "Habe·nun"
    assert found["weights"].shape == (1, 4, 8, 8)


def test_every_kind_of_positions(make):
    for kind, names in {"learned": "codes", "sinusoidal": "codes", "rotary": "pairs"}.items():
        make(positions=kind)
        assert draw.main(["positions", "run", "--length", "99", "--out", "p.npz"]) == 0
        assert len(np.load("p.npz")[names]) == 16  # block_size
    make(positions="learned")
    assert draw.main(["positions", "run", "--out", "p.npz"]) == 0
    table = load_trained(Path("run")).weights["position_embedding.weight"]
    np.testing.assert_array_equal(np.load("p.npz")["codes"], table)
    make(positions="none")
    with pytest.raises(UserError, match=r"run has no position codes \(--positions none\)"):
        draw.main(["positions", "run"])
    assert draw.main(["positions", "--width", "6", "--out", "p.npz"]) == 0
    assert np.load("p.npz")["codes"].shape == (64, 6)


def test_pictures_and_neighbours(make, capsys):
    make()
    assert draw.main(["neighbours", "run", "--tokens", "a", "e", "--top", "2", "--projector", "p"]) == 0
    assert [len(line.split()) for line in capsys.readouterr().out.splitlines()] == [5, 5]
    listed = Path("p/metadata.tsv").read_text(encoding="utf-8").splitlines()
    assert len(listed) == load_trained(Path("run")).tokenizer.vocab_size
    pytest.importorskip("matplotlib")
    for words in (["attention", "run", "--text", "Habe"], ["positions"], ["positions", "run"], ["neighbours", "run"]):
        assert draw.main([*words, "--out", f"{words[0]}.svg"]) == 0
        assert "</svg>" in Path(f"{words[0]}.svg").read_text(encoding="utf-8")


def test_sample_plots_what_the_prompt_attends_to(make, capsys):
    pytest.importorskip("matplotlib")
    make()
    assert sample.main(["run", "--start", "Habe nun", "--max_new_tokens", "3", "--attention", "a.svg"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Habe nun")
    assert "wrote a.svg" in err
    assert "layer 2, head 4" in Path("a.svg").read_text(encoding="utf-8")
    assert sample.main(["run", "--start", "Habe nun" * 9, "--max_new_tokens", "3", "--attention", "a.png"]) == 0
    for more in (["--attention", "a.gif"], ["--attention", "a.svg", "--interactive"]):
        with pytest.raises(UserError, match=r"a\.gif: must end with|so omit --interactive"):
            sample.main(["run", *more])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["attention", "run"], "give the model something to read: --text"),
        (["attention", "run", "--text", "a" * 17], "--text has 17 tokens, but the model reads at most 16"),
        (["attention", "run", "--text", "ab", "--layer", "3"], "--layer 3: the model has 2"),
        (["attention"], "the checkpoint is missing: python -m studies.draw attention out/goethe"),
        (["attention", "nowhere", "--text", "a"], "there is no checkpoint"),
        (["neighbours", "run", "--tokens", "ab"], "--tokens ab: this is not one token"),
    ],
)
def test_mistakes_give_one_sentence(make, words, reason):
    make()
    with pytest.raises(UserError, match=reason):
        draw.main(words)
