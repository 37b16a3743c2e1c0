"""Tasks without a corpus, and a model that learns one of them perfectly."""

import numpy as np
import pytest

from seq2seq.config import Seq2SeqConfig
from seq2seq.data import BOS, EOS, SPECIALS, TranslationData
from seq2seq.model import Seq2Seq
from seq2seq.toys import TOYS, english_number, german_number, toy_pairs
from tests.places import here
from tinygrad_lite.device import random_key
from tinygrad_lite.optim import AdamW, cosine, decay_groups
from workshop.decoding.sampling import generate
from workshop.run.pair_data import encode_pairs
from workshop.tokenizers.char import CharTokenizer

pytestmark = pytest.mark.every_device


def test_every_task_is_unlimited_and_reproducible():
    for name in TOYS:
        pairs = toy_pairs(name, 200)
        assert len(set(pairs)) == 200
        assert pairs[:50] == toy_pairs(name, 50)
        assert pairs != toy_pairs(name, 200, seed=1)


def test_the_tasks_do_what_their_names_say():
    for source, target in toy_pairs("reverse", 20):
        assert source == target[::-1]
        assert len(source) == 10
    for source, target in toy_pairs("sort", 20):
        assert sorted(source) == list(target)


NEUN, NINE = "neunhundertneunundneunzig", "nine hundred ninety-nine"


@pytest.mark.parametrize(
    ("n", "german", "english"),
    [
        (0, "null", "zero"),
        (16, "sechzehn", "sixteen"),
        (17, "siebzehn", "seventeen"),
        (30, "dreißig", "thirty"),
        (99, "neunundneunzig", "ninety-nine"),
        (100, "einhundert", "one hundred"),
        (1001, "eintausendeins", "one thousand one"),
        (999_999, f"{NEUN}tausend{NEUN}", f"{NINE} thousand {NINE}"),
    ],
)
def test_numbers_in_words(n, german, english):
    assert (german_number(n), english_number(n)) == (german, english)


@pytest.mark.parametrize("number", [german_number, english_number])
def test_all_numbers_are_different(number):
    assert len({number(n) for n in range(20_000)}) == 20_000


@pytest.mark.too_long_to_emulate("half an hour")
@pytest.mark.parametrize(
    ("letters", "rows", "steps"), [(5, 32, 300), pytest.param(10, 64, 400, marks=pytest.mark.slow)]
)
def test_reversal_is_learned_perfectly(letters, rows, steps):
    """Five letters, or ten, never seen in this order: every one of 200 sequences right."""
    pairs = [(source[:letters], target[-letters:]) for source, target in toy_pairs("reverse", 8200)]
    tokenizer = CharTokenizer.train("".join(sorted({c for source, _ in pairs for c in source})), SPECIALS + ("<unk>",))
    encoded = encode_pairs(tokenizer, pairs, BOS, EOS)
    size = rows * 2 * (letters + 1)
    data = TranslationData(tokenizer, encoded[200:], encoded[:200], size, micro_steps=1, seed=0, device=here())
    ids = [tokenizer.specials[name] for name in SPECIALS]
    with random_key(0):
        model = Seq2Seq(Seq2SeqConfig(tokenizer.vocab_size, *ids, n_layer=1, n_head=4, n_embd=64, dropout=0.0))
    optimizer = AdamW(decay_groups(model, 0.01), lr=3e-3, betas=(0.9, 0.98))
    for step in range(steps):
        optimizer.zero_grad()
        for batch, _ in data.micro_batches(step):
            model.loss(batch).backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.lr = cosine(step, 3e-3, 50, steps, 0.0)
        optimizer.step()
    model.eval()
    first = model.start([source for source, _ in data.held_out])
    tokens = generate(model.step, *first, max_new_tokens=letters + 1, temperature=0.0)
    assert np.array(list(tokens)).T.tolist() == [target[1:] for _, target in data.held_out]
