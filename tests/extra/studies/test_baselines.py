"""The n-gram models against their definition, and the command that prints them."""

import math
import os
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extra.gpt.options import GPTOptions
from extra.gpt.trained import load_trained
from extra.studies import baselines
from extra.studies.baselines import KneserNey
from gpt.data import bits_per_character, prepare
from tests.gpt.saved_models import saved_gpt
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import OptionError
from training.corpora.texts import load_files

TEXT = "Habe nun, ach! Philosophie, Juristerei und Medizin,\nund leider auch Theologie durchaus studiert.\nDie " * 12
OTHER = "Da steh ich nun, ich armer Tor! Und bin so klug als wie zuvor.\n" * 12


def by_definition(text, order, vocab_size, character, context, highest=True):
    """P(w | h) by the formula of the docstring, with fresh counts at every step.

    Orders below the highest count predecessors; if a context is too short for an order, the next lower one is used.
    """
    if order == 0:
        return 1 / vocab_size
    shorter = by_definition(text, order - 1, vocab_size, character, context, highest=False)
    if len(context) < order - 1:
        return shorter
    h = context[len(context) - (order - 1) :]
    places = range(len(text) - order + 1)
    if highest:
        counts = Counter(text[i : i + order] for i in places)
    else:
        before = {(text[i - 1], text[i : i + order]) for i in places if i > 0}
        counts = Counter(gram for _, gram in before)
    n1, n2 = (list(counts.values()).count(n) for n in (1, 2))
    d = n1 / (n1 + 2 * n2) if n1 and n2 else 0.5
    of_h = {gram[-1]: count for gram, count in counts.items() if gram[:-1] == h}
    if not of_h:
        return shorter
    kept = of_h[character] - d if character in of_h else 0.0
    return (kept + d * len(of_h) * shorter) / sum(of_h.values())


@settings(max_examples=40, deadline=None)
@given(text=st.text("abc", min_size=1, max_size=30), context=st.text("abcd", max_size=6), order=st.integers(1, 4))
def test_probabilities_follow_the_definition_and_sum_to_one(text, context, order):
    model = KneserNey(text, order, vocab_size=4)
    found = [model.probability(character, context) for character in "abcd"]
    expected = [by_definition(text, order, 4, character, context) for character in "abcd"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert min(found) > 0
    assert math.fsum(found) == pytest.approx(1, abs=1e-12)


# --- bits per character ---------------------------------------------------------------------------------------


def test_bits_are_the_mean_over_all_characters_but_the_first():
    model, text = KneserNey(TEXT, 4, 40), "auch das"
    expected = [model.probability(text[i], text[:i]) for i in range(1, len(text))]
    assert model.bits_per_character(text) == pytest.approx(-np.log2(expected).mean())


# --- the GPT and the command ----------------------------------------------------------------------------------


@pytest.fixture
def folder(workplace):
    """A folder with two texts to work in."""
    (workplace / "faust.txt").write_text(TEXT, encoding="utf-8")
    (workplace / "tor.txt").write_text(OTHER, encoding="utf-8")
    return workplace


def make_checkpoint(path, text, tokenizer="char", age=0, step=5):
    """A tiny GPT with random weights, as if trained on this text `age` seconds ago; also its data."""
    data = prepare(GPTOptions.of(text=[text], tokenizer=tokenizer, vocab_size=270, block_size=8))
    saved_gpt(path, data.tokenizer, step, data.corpus.sha256, n_layer=1, n_embd=8, block_size=8)
    os.utime(path, (1e9 - age, 1e9 - age))
    return load_trained(path).make_model(), data


def rows(printed):
    """The table as a dictionary from model to bits per character."""
    _, *lines = printed.splitlines()
    return {re.split(r"\s{2,}", line)[0]: float(line.split()[-1]) for line in lines}


def test_the_command_prints_all_orders(folder, ran):
    out, err = ran(baselines.main, "--text", "faust.txt")
    found = rows(out)
    assert list(found) == ["uniform", "1-gram", "2-gram", "3-gram", "4-gram", "5-gram", "6-gram"]
    corpus = load_files(["faust.txt"])
    vocab_size = len(set(corpus.text))
    train, held_out = baselines.cut(corpus)
    assert found["uniform"] == round(math.log2(vocab_size), 3)
    assert found["4-gram"] == round(KneserNey(train, 4, vocab_size).bits_per_character(held_out), 3)
    assert "no GPT under out/ learned from this text" in err


def test_the_gpt_is_measured_as_in_training(folder, ran):
    model, data = make_checkpoint(folder / "some.safetensors", "faust.txt", "bpe")
    parts = tuple(data.tokenizer.decode(part) for part in (data.train, data.held_out))
    assert baselines.cut(load_files(["faust.txt"])) == parts
    model.eval()
    with no_grad():
        losses = [(model.loss(batch).item(), batch[1].numel()) for batch in data.validation_batches(4, eval_iters=0)]
    nats = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    found = rows(ran(baselines.main, "--text", "faust.txt", "--orders", 2, "--checkpoint", "some.safetensors").out)
    assert list(found) == ["uniform", "2-gram", "GPT"]
    assert found["GPT"] == pytest.approx(bits_per_character(nats, data.chars_per_token), abs=6e-4)


def test_the_newest_checkpoint_of_the_same_text_is_taken(folder, ran):
    for name, text, age in (("old", "faust.txt", 30), ("mine", "faust.txt", 20), ("other", "tor.txt", 10)):
        make_checkpoint(folder / f"out/{name}/best.safetensors", text, age=age)
    (folder / "out/broken.safetensors").write_text("no checkpoint", encoding="utf-8")
    out, err = ran(baselines.main, "--text", "faust.txt", "--orders", 1)
    assert "GPT" in rows(out)
    assert re.findall("note: left out: .*?(broken|other)", err) == ["broken", "other"]
    assert f"GPT: {os.path.join('out', 'mine', 'best.safetensors')}: gpt with" in err


@pytest.mark.parametrize("orders", ["0-3", "4-2", "11", "1,2", "²"])
def test_invalid_orders_are_refused(orders):
    with pytest.raises(OptionError, match=r"--orders .*: write one order such as 6, or a range such as 1-6"):
        baselines.read_orders(orders)
    assert [list(baselines.read_orders(valid)) for valid in ("6", "2-4")] == [[6], [2, 3, 4]]
