"""Translations of lists of sentences: each is independent of the others."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

from seq2seq.data import SPECIALS
from seq2seq.model import Seq2Seq
from seq2seq.translate import draw, translate
from tests.gpt.configs import Seq2SeqConfig
from tests.gpt.saved_models import padded
from tests.lively import lively
from tests.places import here
from text.tokenizers.byte import ByteTokenizer
from tinygrad_lite.random import keyed_rng

pytestmark = pytest.mark.every_device

TOKENIZER = ByteTokenizer(SPECIALS)
IDS = [TOKENIZER.specials[name] for name in SPECIALS]
CONFIG = Seq2SeqConfig(TOKENIZER.vocab_size, *IDS, n_layer=1, n_head=2, n_embd=16, dropout=0.3)
SENTENCES = ["Der Mann liest ein Buch.", "Ja!", "", "Grün", "Die Katze schläft auf dem Dach.", "Nein?"]


@pytest.fixture
def model(place) -> Seq2Seq:
    return lively(lambda: Seq2Seq(CONFIG)).eval()


@pytest.mark.parametrize("beam", [1, 3])
def test_one_equals_many_and_their_order_does_not_matter(model, beam):
    search = functools.partial(translate, model, TOKENIZER, beam=beam, n_best=min(2, beam))
    together, backwards = search(SENTENCES), search(SENTENCES[::-1])[::-1]
    alone = [search([sentence])[0] for sentence in SENTENCES]
    for other in (alone, backwards):
        for these, those in zip(together, other, strict=True):
            assert [(t.text, t.length) for t in these] == [(t.text, t.length) for t in those]
            np.testing.assert_allclose([t.log_prob for t in these], [t.log_prob for t in those], rtol=1e-9)


def test_an_empty_sentence_has_an_empty_translation(model):
    assert translate(model, TOKENIZER, []) == []
    for found in translate(model, TOKENIZER, ["", ""], beam=4, n_best=3):
        assert [(t.text, t.length, t.log_prob) for t in found] == [("", 0, 0.0)]


def test_tokens_that_only_pad_a_vocabulary_are_never_generated(model):
    tokenizer = padded(ByteTokenizer(SPECIALS))
    config = replace(CONFIG, vocab_size=tokenizer.vocab_size)
    weights, name = model.state_dict(), "token_embedding.weight"
    probable = 9 * keyed_rng(3, "test").standard_normal((7, CONFIG.n_embd))
    weights[name] = np.concatenate([weights[name], probable])
    eager = Seq2Seq.from_weights(config, weights, here()).eval()
    assert all(itertools.islice(draw(eager, tokenizer, "Ja, nein.", temperature=2.0), 5))
    for found in translate(eager, tokenizer, SENTENCES, beam=2):
        assert all(token < TOKENIZER.vocab_size for token in found[0].tokens)


def with_settings(model, **settings) -> Seq2Seq:
    """The same weights under other settings."""
    return Seq2Seq.from_weights(replace(CONFIG, **settings), model.state_dict(), here()).eval()


def test_a_sentence_that_is_too_long_is_cut(model):
    short = with_settings(model, block_size=8)
    (found,), (begun,) = (translate(short, TOKENIZER, [text]) for text in ("abcdefghijklm", "abcdefgh"))
    assert found == begun
    assert found[0].length <= 7


def test_the_length_penalty_is_that_of_the_settings_unless_one_is_given(model):
    found = [translate(with_settings(model, length_penalty=p), TOKENIZER, SENTENCES[:1], beam=3) for p in (0.0, 3.0)]
    for penalty, expected in zip((0.0, 3.0), found, strict=True):
        assert translate(model, TOKENIZER, SENTENCES[:1], beam=3, length_penalty=penalty) == expected
    assert found[0][0][0].score != found[1][0][0].score
