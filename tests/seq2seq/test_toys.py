"""Tasks without a corpus, and a model that learns one of them perfectly."""

import pytest

import train
from seq2seq.toys import TOYS, english_number, german_number, toy_pairs
from tests.tiny_runs import losses
from training.folder import RunFolder

pytestmark = pytest.mark.every_device


def test_every_task_is_unlimited_and_reproducible():
    for name in TOYS:
        pairs = toy_pairs(name, 200)
        assert (len(set(pairs)), pairs[:50]) == (200, toy_pairs(name, 50))
        assert pairs != toy_pairs(name, 200, seed=1)


def test_the_tasks_do_what_their_names_say():
    for source, target in toy_pairs("reverse", 20):
        assert (source, len(source)) == (target[::-1], 10)
    lengths = {len(source) for source, target in toy_pairs("reverse-long", 2000) if source == target[::-1]}
    assert lengths == set(range(5, 41))
    for source, target in toy_pairs("sort", 20):
        assert (sorted(source), len(source)) == (list(target), 10)
    assert toy_pairs("numbers", 2)[1] == ("einhundertsechsundneunzig", "one hundred ninety-six")


NEUN, NINE = "neunhundertneunundneunzig", "nine hundred ninety-nine"
NUMBERS = {0: ("null", "zero"), 16: ("sechzehn", "sixteen"), 17: ("siebzehn", "seventeen"), 30: ("dreißig", "thirty")}
NUMBERS |= {100: ("einhundert", "one hundred"), 1001: ("eintausendeins", "one thousand one")}
NUMBERS |= {999_999: (f"{NEUN}tausend{NEUN}", f"{NINE} thousand {NINE}")}


@pytest.mark.parametrize("n", NUMBERS)
def test_numbers_in_words(n):
    assert (german_number(n), english_number(n)) == NUMBERS[n]


SHORT = ["--pairs=pairs.tsv", "--batch_tokens=384", "--max_iters=220", "--eval_interval=220", "--min_lr=0"]


@pytest.mark.too_long_to_emulate("half an hour")
@pytest.mark.parametrize("settings", [SHORT, pytest.param([], marks=pytest.mark.slow)])
def test_reversal_is_learned_perfectly(settings, workplace):
    """Four letters, or the preset's ten, never seen in this order: every one of 200 words right."""
    pairs = [(source[:4], target[-4:]) for source, target in toy_pairs("reverse", 8200)]
    (workplace / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    assert train.main(["reverse", "--out_dir=run", *settings]) == 0
    exact = losses(RunFolder("run"), "exact")
    assert exact[max(exact)] == 1
