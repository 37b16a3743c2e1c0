"""The score of a text is the loss that training measures, computed from the probabilities of its tokens."""

import math

import numpy as np
import pytest

from gpt.score import score, token_log_probs
from tests.gpt.small_gpts import gpt_with_large_weights
from tinygrad_lite.errors import CorpusError, OptionError
from workshop.corpora.texts import Corpus
from workshop.tokenizers.bpe import BPETokenizer
from workshop.tokenizers.char import CharTokenizer

pytestmark = pytest.mark.every_device

TEXT = "Es irrt der Mensch, so lang er strebt. Grün ist nur des Lebens goldner Baum."


SIZES = {"n_layer": 1, "n_embd": 8, "block_size": 7}


def corpus(text: str) -> Corpus:
    return Corpus("text.txt", text, "a test", "none", "0" * 64)


CHARACTERS = CharTokenizer.train(TEXT, ["<unk>", "<bos>"])
TOKENIZERS = [(CHARACTERS, []), (CHARACTERS, [CHARACTERS.specials["<bos>"]]), (BPETokenizer.train(TEXT, 290), [])]


@pytest.mark.parametrize(("tokenizer", "prefix"), TOKENIZERS, ids=["characters", "after a prefix", "bpe"])
def test_the_score_is_the_mean_over_the_tokens(tokenizer, prefix, monkeypatch):
    """Also over those that the tokenizer puts before a text, which are no part of its characters."""
    monkeypatch.setattr(tokenizer, "prefix", prefix)
    model = gpt_with_large_weights(vocab_size=tokenizer.vocab_size, **SIZES)
    own = tokenizer.encode(TEXT)
    nats = -token_log_probs(model, np.array([*prefix, *own])).mean()
    found = score(model, tokenizer, corpus(TEXT))
    assert (found.characters, found.tokens, found.nats_per_token) == (len(TEXT), len(prefix) + len(own), nats)
    assert found.bits_per_character == pytest.approx(nats / math.log(2) * len(own) / len(TEXT), rel=1e-12)


@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("length", [2, 5, 8, 9, 11, 64])
def test_overlapping_windows_count_every_token_once_with_enough_before_it(stride, length):
    model, ids = gpt_with_large_weights(vocab_size=20, **SIZES), np.random.default_rng(1).integers(0, 20, length)
    found = token_log_probs(model, ids, stride)
    assert found.shape == (length - 1,)
    for position in range(1, length):
        window = max(0, -(-(position - 7) // stride)) * stride  # the first window that reaches this token
        assert position - window >= min(position, 7 - stride + 1)
        log_probs, _ = model.start(ids[None, window:position])
        assert found[position - 1] == pytest.approx(log_probs[0, ids[position]], rel=1e-9)
    if stride == 7:
        np.testing.assert_array_equal(found, token_log_probs(model, ids))


def test_a_stride_longer_than_a_window_is_refused():
    with pytest.raises(OptionError, match=r"--stride 8: the windows of this model have 7 tokens; take at most that"):
        token_log_probs(gpt_with_large_weights(vocab_size=20, **SIZES), np.zeros(9, int), 8)


def test_unknown_characters_have_a_score():
    tokenizer = CharTokenizer.train("Es irt")
    found = score(gpt_with_large_weights(vocab_size=tokenizer.vocab_size, **SIZES), tokenizer, corpus("Es €rrt"))
    assert math.isfinite(found.bits_per_character)


def test_one_token_is_too_short():
    tokenizer = CharTokenizer.train(TEXT)
    with pytest.raises(CorpusError, match=r"text\.txt has fewer than two tokens"):
        score(gpt_with_large_weights(vocab_size=tokenizer.vocab_size, **SIZES), tokenizer, corpus("E"))
