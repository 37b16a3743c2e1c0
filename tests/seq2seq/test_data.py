"""Sentence pairs as batches: all of them, each once, with little padding, and with the right weights."""

import numpy as np
import pytest

from seq2seq.data import BOS, EOS, SPECIALS, TranslationData
from seq2seq.model import Seq2Seq
from tests.gpt.configs import Seq2SeqConfig
from tests.lively import gradients, lively
from text.tokenizers.byte import ByteTokenizer
from training.pair_data import area, batches_of, encode_pairs

pytestmark = pytest.mark.every_device

TOKENIZER = ByteTokenizer(SPECIALS)


def made_up_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    words = ["ja", "nein", "Haus", "geht", "Wald", "und", "sieht", "Vögel"]
    lengths = rng.geometric(0.2, count)
    return [(" ".join(rng.choice(words, n)), " ".join(rng.choice(words, n + rng.integers(0, 3)))) for n in lengths]


def make_data(count: int = 300, **settings) -> TranslationData:
    train, held_out = (encode_pairs(TOKENIZER, made_up_pairs(n, seed), BOS, EOS) for seed, n in enumerate((count, 20)))
    return TranslationData(TOKENIZER, train, held_out, **{"batch_tokens": 400, "micro_steps": 1, "seed": 5} | settings)


def test_a_pair_is_source_and_marked_target():
    ((source, target),) = encode_pairs(TOKENIZER, [("ä", "b")], BOS, EOS)
    assert source == [195, 164]
    assert target == [TOKENIZER.specials["<bos>"], 98, TOKENIZER.specials["<eos>"]]


@pytest.mark.parametrize("micro_steps", [1, 3])
def test_an_epoch_has_every_pair_once_and_the_next_has_another_order(micro_steps):
    data = make_data(micro_steps=micro_steps)
    updates = -(-len(data.epoch(0)) // micro_steps)
    steps = range(updates), range(updates, 2 * updates)
    seen = [[i for step in epoch for part in data.update(step) for i in part] for epoch in steps]
    assert len(data.epoch(0)) == len(data.epoch(1))  # or the line above would be wrong
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(300))
    assert seen[0] != seen[1]


def test_batches_are_full_but_not_too_full():
    data = make_data(2000)
    batches = [[data.train[i] for i in part] for part in data.epoch(0)]
    areas = [area(np.array([data.widths(pair) for pair in batch])) for batch in batches]
    assert max(a for a, batch in zip(areas, batches, strict=True) if len(batch) > 1) <= 400
    assert np.median(areas) > 300
    assert data.padding() < 0.15
    real = sum(len(source) + len(target) for source, target in data.train)
    assert data.padding() == pytest.approx(1 - real / sum(areas))


def test_a_pair_that_is_longer_than_a_batch_is_a_batch_of_its_own():
    widths = [(n, n) for n in (500, 3, 2)]
    assert [part.tolist() for part in batches_of(widths, 400, np.arange(3))] == [[2, 1], [0]]
    assert batches_of([], 400, np.arange(0)) == []


def test_accumulated_gradients_are_those_of_one_large_batch():
    """Though the parts have different numbers of tokens."""
    data = make_data(40, micro_steps=3)
    ids = (TOKENIZER.specials[name] for name in SPECIALS)
    model = lively(lambda: Seq2Seq(Seq2SeqConfig(259, *ids, 1, 2, 8, dropout=0.0))).to("cpu")
    losses = [model.loss(batch) * (tokens / data.target_tokens(0)) for batch, tokens in data.micro_batches(0)]
    for part in losses:
        part.backward()
    parts = gradients(model)
    together = [data.train[i] for part in data.update(0) for i in part]
    assert len({len(part) for part in data.update(0)}) > 1
    loss = model.loss(data.batch(together))
    loss.backward()
    assert sum(part.item() for part in losses) == pytest.approx(loss.item(), rel=1e-12)
    for name, gradient in gradients(model).items():
        np.testing.assert_allclose(parts[name], gradient, rtol=1e-9, atol=1e-13)


def test_the_validation_batches_are_all_held_out_pairs():
    data, pad = make_data(), TOKENIZER.specials["<pad>"]
    assert sum(count for _, count in data.validation_batches()) == sum(len(target) - 1 for _, target in data.held_out)
    targets = [row[row != pad].tolist() for (_, rows), _ in data.validation_batches() for row in rows.numpy()]
    assert sorted(targets) == sorted(target for _, target in data.held_out)
