"""Hidden tokens and pairs of segments."""

from collections import Counter

import numpy as np
import pytest

from extra.encoders.options import BertOptions
from extra.encoders.words import CLS, MASK, SEP, SPECIALS, MaskedText, TokenizedText, sentences
from tests.tiny_runs import made_up_text
from text.tokenizers.bpe import BPETokenizer
from tinygrad_lite.random import keyed_rng

TEXT = made_up_text().replace("\n", ". ", 40).replace(". ", ".\n\n", 3)
TOKENIZER = BPETokenizer.train(TEXT, 300, SPECIALS)


def data(**settings) -> MaskedText:
    text = TokenizedText.encode(TOKENIZER, TEXT)
    return MaskedText(TOKENIZER, text, text, BertOptions.of(block_size=32, seed=1, **settings))


def test_sentences_joined_are_the_text():
    for text in (TEXT, "", "a", "\n\n", "Ja?! »Nein.« Doch...\nSo"):
        assert "".join(sentences(text)) == text


def test_a_text_is_tokenized_whole_and_knows_where_sentences_begin():
    text = TokenizedText.encode(TOKENIZER, "Eins. Zwei! Drei\n\nVier. Fünf")
    assert TOKENIZER.decode(text.tokens) == "Eins. Zwei! Drei\n\nVier. Fünf"
    assert [TOKENIZER.decode(text.tokens[cut:])[:4] for cut in text.cuts] == ["Zwei", "Drei", "Fünf"]
    assert [TOKENIZER.decode(text.tokens[start:])[:4] for start in text.documents[:-1]] == ["Eins", "Vier"]
    assert text.document(text.cuts[0]) == (0, text.documents[1])
    assert text.document(text.cuts[-1]) == (text.documents[1], len(text.tokens))


def test_of_fifteen_percent_most_are_masked_some_replaced_some_kept():
    masked, ids = data(), np.array([1, *range(10, 210), 2])
    ids[0], ids[-1] = TOKENIZER.specials[CLS], TOKENIZER.specials[SEP]
    fates = Counter()
    for n in range(200):
        hidden, places = masked.hide(ids, keyed_rng(1, "test", n))
        assert len(places) == len(set(places)) == 30  # 15 % of 200
        assert not {0, len(ids) - 1} & set(places.tolist())
        assert (np.delete(hidden, places) == np.delete(ids, places)).all()
        for place in places:
            same = hidden[place] == ids[place]
            fates["mask" if hidden[place] == TOKENIZER.specials[MASK] else "same" if same else "other"] += 1
    for fate, share, tolerance in ("mask", 0.8, 0.02), ("other", 0.1, 0.015), ("same", 0.1, 0.015):
        assert fates[fate] / fates.total() == pytest.approx(share, abs=tolerance)


@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_sequence_has_its_specials_and_fits(next_sentence):
    masked, special = data(next_sentence=next_sentence, eval_iters=60), TOKENIZER.specials
    for one in masked.validation_sequences():
        restored = one.ids.copy()
        restored[one.places] = one.targets
        assert len(one.ids) == len(one.segments) <= 32
        assert (restored[0], restored[-1]) == (special[CLS], special[SEP])
        assert (restored == special[SEP]).sum() == 1 + next_sentence
        assert one.segments.max() == int(next_sentence)
        if next_sentence:
            cut = int(np.flatnonzero(restored == special[SEP])[0])
            assert (one.segments == (np.arange(len(restored)) > cut)).all()
            assert (TOKENIZER.decode(restored) in TEXT) or not one.follows


def test_half_of_the_second_segments_follow():
    follows = [one.follows for one in data(next_sentence=True, eval_iters=400).validation_sequences()]
    assert np.mean(follows) == pytest.approx(0.5, abs=0.1)


def test_micro_steps_cut_the_same_sequences():
    (whole,) = data(batch_size=6).micro_batches(3)
    parts = [one for part in data(batch_size=3, gradient_accumulation_steps=2).micro_batches(3) for one in part]
    assert all((a.ids == b.ids).all() for a, b in zip(whole, parts, strict=True))


def test_a_batch_says_where_its_hidden_tokens_stand():
    masked = data(next_sentence=True, eval_iters=5)
    rows = masked.validation_sequences()
    batch = masked.batch(rows)
    ids, width = batch.ids.numpy(), batch.ids.shape[1]
    assert (batch.targets.numpy() == np.concatenate([row.targets for row in rows])).all()
    for place in batch.places.numpy():
        assert place % width < len(rows[place // width].ids)
    assert (ids.ravel()[batch.places.numpy()] == np.concatenate([row.ids[row.places] for row in rows])).all()
    part = masked.batch(rows[:2], rows)
    tokens = [len(row.targets) for row in rows]
    assert part.follows_share == pytest.approx((2 / 5) / (sum(tokens[:2]) / sum(tokens)))
