"""Pictures of a GPT: what is drawn is what the model computes, for every kind of positions and heads."""

from pathlib import Path

import numpy as np
import pytest

import sample
from extra import inside as of_encoders
from extra.encoders.words import whole_sequence
from extra.gpt import sample as sampling
from extra.gpt.trained import load_trained
from extra.inside.gpt import look_inside
from extra.studies.draw import main as draw_main
from tests.extra.pretrained.test_encoders import made
from tests.gpt.saved_models import save, saved_gpt
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor

VERSE = "Habe nun, ach! Philosophie, Juristerei und Medizin,\nund leider auch Theologie durchaus studiert.\n"


@pytest.fixture
def make(workplace):
    """A function that writes a checkpoint with random weights into the folder `run`."""
    return lambda **more: saved_gpt(Path("run/last.safetensors"), CharTokenizer.train(VERSE), n_head=4, **more)


@pytest.mark.parametrize("more", [{}, {"positions": "rotary", "n_kv_head": 2, "qk_norm": True}])
def test_the_attention_drawn_is_that_of_the_model(make, more):
    make(**more)
    assert draw_main(["attention", "run", "--text", "Habe nun", "--layer", "2", "--out", "a.npz"]) == 0
    found, trained = np.load("a.npz"), load_trained(Path("run"))
    inside = look_inside(trained.make_model(), trained.tokenizer.encode("Habe nun"))
    np.testing.assert_array_equal(found["weights"], inside.attention[1:])
    assert ("".join(found["keys"]), found["weights"].shape) == ("Habe·nun", (1, 4, 8, 8))


def test_every_kind_of_positions(make):
    make(positions="rotary")
    assert draw_main(["positions", "run", "--length", "99", "--out", "p.npz"]) == 0
    assert len(np.load("p.npz")["pairs"]) == 16  # block_size
    make(positions="learned")
    assert draw_main(["positions", "run", "--out", "p.npz"]) == 0
    table = load_trained(Path("run")).weights["position_embedding.weight"]
    np.testing.assert_array_equal(np.load("p.npz")["codes"], table)
    assert draw_main(["positions", "--width", "6", "--out", "p.npz"]) == 0
    assert np.load("p.npz")["codes"].shape == (64, 6)


def test_attention_and_positions_of_encoders(workplace):
    trained = made()
    save(Path("run/last.safetensors"), "bert", trained.make_model(), trained.weights, trained.tokenizer)
    assert draw_main(["positions", "run", "--out", "p.npz"]) == 0
    np.testing.assert_array_equal(np.load("p.npz")["codes"], trained.weights["position_embedding.weight"][:64])
    assert draw_main(["attention", "run", "--text", "w1 w22", "--layer", "2", "--out", "a.npz"]) == 0
    found, ids = np.load("a.npz"), whole_sequence(trained.tokenizer, "w1 w22")
    inside = of_encoders.look_inside(trained.make_model(), Tensor(ids[None], dtype=np.int64))
    np.testing.assert_array_equal(found["weights"], inside.attention[1:2])
    assert (found["keys"][0], found["keys"][-1], len(found["keys"])) == ("[CLS]", "[SEP]", len(ids))
    assert (found["weights"] > 0).all()  # also to later tokens


def test_pictures_and_neighbours(make, ran):
    make()
    shown = ran(draw_main, "neighbours", "run", "--tokens", "a", "e", "--top", 2).out
    assert [len(line.split()) for line in shown.splitlines()] == [5, 5]
    pytest.importorskip("matplotlib")
    for words in ("attention run --text Habe --layer 1", "positions", "positions run", "neighbours run"):
        ran(draw_main, *words.split(), "--out", "drawn.svg")
        assert "</svg>" in Path("drawn.svg").read_text(encoding="utf-8")
    command = "run --start Habe --max_new_tokens 3 --attention a.svg".split()
    assert "wrote a.svg" in ran(sample.main, *command).err
    assert "layer 2, head 4" in Path("a.svg").read_text(encoding="utf-8")


SAMPLED = [
    ("Habe nun", ["--num_samples", "2"], "self-attention", 8 + 3),
    ("Habe nun", ["--beam", "2", "--n_best", "2"], "self-attention", 8 + 3),
    ("Habe nun, ach!", [], "self-attention in the last 16 tokens", 16),
]


@pytest.mark.parametrize(("start", "more", "what", "count"), SAMPLED)
def test_sample_plots_the_prompt_and_the_first_text_that_follows(make, ran, monkeypatch, start, more, what, count):
    pytest.importorskip("matplotlib")
    make()
    drawn = []
    monkeypatch.setattr(sampling, "plot_attention", lambda found, *rest: drawn.append((found.queries, *rest)))
    said = ran(sample.main, "run", "--start", start, "--max_new_tokens", 3, "--attention", "a.svg", *more).out
    first = said.replace("\n", "\\n")[: len(start) + 3]
    ((tokens, *rest),) = drawn
    assert rest == [what, Path("a.svg")]
    assert (len(tokens), "".join(tokens).replace("·", " ")[-9:]) == (count, first[-9:])
