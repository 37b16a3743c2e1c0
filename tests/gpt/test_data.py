"""Text becomes batches: targets are the ids shifted by one, and the held-out end is never trained on."""

import math
import re

import numpy as np
import pytest

from gpt.data import TextData, bits_per_character, epoch_starts, prepare, windows_of_epoch
from gpt.options import GPTOptions
from gpt.task import TextTask
from tinygrad_lite.errors import CorpusError

TEXT = "".join(chr(97 + (i * i + i // 7) % 26) for i in range(2000))


@pytest.fixture
def data(tmp_path) -> TextData:
    return prepared(tmp_path, TEXT, block_size=16)


def prepared(folder, text, known=None, **options) -> TextData:
    """The data of a run on this text."""
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return prepare(GPTOptions.of(text=[str(folder / "text.txt")], **options), known)


SHORT = [
    (18, "take --block_size 15 or smaller, or a text of more than 73 characters \\(this one has 18\\)"),
    (72, "take --block_size 64 or smaller, or a text of more than 73 characters"),
    (50, "45 tokens to learn from and 5 held out.*at least 66 .*take --block_size 44 or smaller, or a text of more"),
    (10, "held out, .* and 2; take a text of more than 73 characters \\(this one has 10\\)"),
]


@pytest.mark.parametrize(("characters", "advice"), SHORT)
def test_the_error_about_a_short_text_says_what_helps(tmp_path, characters, advice):
    """And following its advice works."""
    with pytest.raises(CorpusError, match=advice):
        prepared(tmp_path, TEXT[:characters], block_size=65)
    if smaller := re.search(r"--block_size (\d+) or", advice):
        data = prepared(tmp_path, TEXT[:characters], block_size=int(smaller[1]))
        assert len(data.train) == int(smaller[1]) + 1
    prepared(tmp_path, TEXT[:74], block_size=65)


def test_targets_are_the_next_tokens_of_the_training_part(data):
    ids, targets = data.batch(step=3, sequences=50)
    assert ids.shape == targets.shape == (50, 16)
    np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
    for row, last in zip(ids, targets[:, -1], strict=True):
        assert data.tokenizer.decode([*row, last]) in TEXT[:1800]


def test_the_held_out_windows_are_never_empty(tmp_path):
    """Where the last one ends with the text, too."""
    data = prepared(tmp_path, TEXT, block_size=199)
    assert [ids.shape for ids, _ in data.validation_batches(4, 0)] == [(1, len(data.held_out) - 1)] == [(1, 199)]


def test_micro_batches_are_the_pieces_of_one_batch(data):
    ids, targets = data.batch(5, 12)
    parts = list(data.micro_batches(5, 4, 3))
    np.testing.assert_array_equal(np.concatenate([part[0].numpy() for part in parts]), ids)
    np.testing.assert_array_equal(np.concatenate([part[1].numpy() for part in parts]), targets)


def starts_of(data, step, sequences):
    """Where the windows of an update begin, if each token is the number of its place."""
    return data.batch(step, sequences)[0][:, 0].tolist()


def test_every_window_can_be_drawn(data):
    data.train = np.arange(200)
    assert {*starts_of(data, 0, 10_000)} == {*range(200 - 16)}


def test_an_epoch_visits_consecutive_windows_once_in_random_order(data):
    """1,800 tokens have 111 windows of 16 wherever the first begins; 37 updates of 6 are two epochs."""
    data.options.data_order, data.train = "epochs", np.arange(1800)
    starts = np.array([starts_of(data, step, 6) for step in range(37)]).ravel()
    assert len(starts) == 2 * 111
    for epoch in (starts[:111], starts[111:]):
        assert np.diff(np.sort(epoch)).tolist() == [16] * 110
        assert np.sort(epoch)[0] < 16
        assert np.diff(epoch).tolist() != [16] * 110
    assert starts[:111].min() != starts[111:].min()
    assert (np.argsort(starts[:111]) != np.argsort(starts[111:])).any()
    assert starts_of(data, 20, 6) == starts[120:126].tolist()  # they depend on the step only, so a run can be resumed


@pytest.mark.parametrize("tokens", [17, 18, 31, 32, 33, 49, 500])
def test_an_epoch_never_leaves_the_text(tokens):
    count = windows_of_epoch(tokens, 16)
    offsets = set()
    for epoch in range(100):
        starts = np.sort(epoch_starts(3, epoch, tokens, 16))
        assert len(starts) == count >= 1
        assert 0 <= starts[0] <= starts[-1] <= tokens - 17
        offsets.add(int(starts[0]))
    assert offsets == set(range(min(16, tokens - 16)))  # every possible offset


def test_a_batch_may_be_longer_than_an_epoch(data):
    data.options.data_order, data.train = "epochs", np.arange(40)  # one window an epoch
    assert starts_of(data, 2, 5) == [epoch_starts(data.options.seed, epoch, 40, 16)[0] for epoch in range(10, 15)]


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_validation_predicts_every_held_out_token_but_the_first_once(data, batch_size):
    data.held_out = data.held_out[: 191 + batch_size]  # also where nothing, or one token, is left of the last window
    batches = list(data.validation_batches(batch_size, 0))
    targets = np.concatenate([target.numpy().ravel() for _, target in batches])
    np.testing.assert_array_equal(targets, data.held_out[1:])


def test_n_windows_are_evenly_spaced_and_fixed(data):
    few = list(data.validation_batches(2, 4))
    assert sum(len(ids) for ids, _ in few) == 4
    again = list(data.validation_batches(2, 4))
    for (a, _), (b, _) in zip(few, again, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    np.testing.assert_array_equal(few[0][0].numpy()[0], data.held_out[:16])
    assert few[-1][1].numpy()[0, -1] == data.held_out[-1]


def test_processes_share_the_rows_of_an_update(tmp_path):
    data = prepared(tmp_path, f"O {TEXT}", block_size=16, batch_size=6, gradient_accumulation_steps=2)
    task = TextTask(data.options)
    assert (task.target_tokens(0), task.example) == (2 * 6 * 16, f"O {TEXT}"[:40])
    assert "an epoch is 10 steps" in task.describe()
    parts = [[*task.batches(3, rank, 3)] for rank in range(3)]
    for step, ((ids, _), share) in enumerate(task.batches(3)):
        assert share == sum(part[step][1] for part in parts) == 0.5
        np.testing.assert_array_equal(np.concatenate([part[step][0][0].numpy() for part in parts]), ids.numpy())
    whole, parts = [*task.validation_batches()], [[*task.validation_batches(rank, 2)] for rank in range(2)]
    assert [count for _, count in whole] == [parts[n % 2][n // 2][1] for n in range(len(whole))]


def test_bits_per_character_depend_on_the_characters_per_token(tmp_path):
    characters = prepared(tmp_path, "abcdefgh" * 200, block_size=8)
    assert bits_per_character(math.log(2), characters.chars_per_token) == pytest.approx(1.0)
    pairs = prepared(tmp_path, "abcdefgh" * 200, block_size=8, tokenizer="bpe", vocab_size=300)
    assert pairs.chars_per_token > 1
    assert bits_per_character(math.log(2), pairs.chars_per_token) == pytest.approx(1 / pairs.chars_per_token)


def test_a_given_tokenizer_is_used_and_unknown_characters_survive(data, tmp_path):
    other = prepared(tmp_path, "ÄÖÜ abc " * 100, data.tokenizer, block_size=16)
    assert other.tokenizer is data.tokenizer
    assert other.train.max() == data.tokenizer.specials["<unk>"]
