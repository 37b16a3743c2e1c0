"""The score of a text is the loss that training measures, computed from the probabilities of its tokens."""

import math

import numpy as np
import pytest

from gpt.score import score, token_log_probs
from tests.gpt.small_gpts import gpt_with_large_weights
from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.errors import CorpusError, OptionError
from training.corpora.texts import Corpus

pytestmark = pytest.mark.every_device

TEXT = "Es irrt der Mensch, so lang er strebt. Grün ist nur des Lebens goldner Baum."


SIZES = {"n_layer": 1, "n_embd": 8, "block_size": 7}


def corpus(text: str) -> Corpus:
    return Corpus("text.txt", text, "a test", "none", "0" * 64)


CHARACTERS = CharTokenizer.train(TEXT, ["<unk>", "<bos>"])
BPE = BPETokenizer.train(TEXT, 290, ["<bos>"])
TOKENIZERS = {"characters": CHARACTERS, "bytes": ByteTokenizer(["<bos>"]), "bpe": BPE}


@pytest.mark.parametrize("text", [TEXT[:5], "\u00e4" + TEXT])
@pytest.mark.parametrize(("kind", "prefix"), [("characters", 0), ("characters", 1), ("bytes", 0), ("bpe", 2)])
def test_the_score_is_the_bits_of_the_predicted_tokens_by_their_characters(kind, prefix, text, monkeypatch):
    """A text's first token is predicted if a prefix stands before it, which then stands before every window."""
    tokenizer = TOKENIZERS[kind]
    before = [tokenizer.specials["<bos>"]] * prefix
    monkeypatch.setattr(tokenizer, "prefix", before)
    model, own = gpt_with_large_weights(vocab_size=tokenizer.vocab_size, **SIZES), tokenizer.encode(text)
    first = min(7, 7 - prefix + 1) if prefix else 8  # what the first window has of the text, its last target included
    windows = [[*before, *own[:first]]]
    for start in range(first, len(own), 7 - prefix):
        windows.append([*before, *own[start - 1 : start + 7 - prefix]])
    nats = []
    for number, window in enumerate(windows):
        for place in range(max(prefix, 1) + (prefix > 0 < number), len(window)):
            log_probs, _ = model.start(np.array([window[:place]]))
            nats.append(-log_probs[0, window[place]])
    found = score(model, tokenizer, corpus(text))
    assert found.nats_per_token == pytest.approx(np.mean(nats), rel=1e-9)
    predicted = tokenizer.decode(own if prefix else own[1:])  # as the page of --explain counts them
    assert found.bits_per_character == pytest.approx(sum(nats) / math.log(2) / len(predicted), rel=1e-9)


@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("length", [2, 8, 9, 64])
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


def test_unknown_characters_have_a_score_but_one_token_and_a_long_stride_have_none():
    tokenizer = CharTokenizer.train("Es irt")
    model = gpt_with_large_weights(vocab_size=tokenizer.vocab_size, **SIZES)
    assert math.isfinite(score(model, tokenizer, corpus("Es €rrt")).bits_per_character)
    with pytest.raises(CorpusError, match=r"text\.txt has fewer than two tokens"):
        score(model, tokenizer, corpus("E"))
    with pytest.raises(OptionError, match=r"--stride 8: the windows of this model have 7 tokens; take at most that"):
        token_log_probs(model, np.zeros(9, int), 8)
