"""Luong's encoder-decoder: its formulas in plain NumPy, where it looks, what it refuses, and that it learns."""

from dataclasses import replace

import numpy as np
import pytest

from seq2seq.attention import attention_weights
from seq2seq.config import Seq2SeqConfig
from seq2seq.options import Seq2SeqOptions
from seq2seq.recurrent import Alignment, RecurrentSeq2Seq
from seq2seq.toys import toy_pairs
from seq2seq.translate import translate
from tests.lively import lively
from tinygrad_lite import Tensor, no_grad
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import OptionError, UserError
from tinygrad_lite.optim import AdamW
from workshop.decoding.state import pad_rows
from workshop.tokenizers.char import CharTokenizer

CONFIG = Seq2SeqConfig(30, 0, 1, 2, mixer="lstm", n_embd=6, n_layer=1, block_size=50, dropout=0.0, label_smoothing=0.0)
rng = np.random.default_rng(4)


def alignment(**settings):
    module = lively(lambda: Alignment(replace(CONFIG, **settings)), "float64")
    return module, {name: p.numpy() for name, p in module.named_parameters()}


def softmax(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


h, memory = rng.standard_normal((2, 1, 4, 6))[0], rng.standard_normal((1, 9, 6))
TEXT = Tensor(np.arange(9)[None, None] < 7)  # two positions of padding


@pytest.mark.parametrize("score", ["dot", "general", "additive"])
def test_scores_are_those_of_the_paper(score):
    module, w = alignment(score=score)
    by_hand = np.empty((4, 7))
    for t in range(4):
        for s in range(7):
            one, other = h[0, t], memory[0, s]
            if score == "dot":
                by_hand[t, s] = one @ other
            elif score == "general":
                by_hand[t, s] = one @ (w["match.weight"] @ other)
            else:
                together = np.concatenate([w["of_state.weight"], w["of_memory.weight"]], 1) @ [*one, *other]
                by_hand[t, s] = w["match.weight"][0] @ np.tanh(together)
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    np.testing.assert_allclose(found[:, :7], softmax(by_hand), rtol=1e-12)
    assert not found[:, 7:].any()
    vectors = module(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    joined = np.concatenate([found @ memory[0], h[0]], axis=1)
    np.testing.assert_allclose(vectors, np.tanh(joined @ w["join.weight"].T), rtol=1e-12)


def test_monotonic_attention_looks_near_the_same_place():
    module, w = alignment(attend="monotonic", attention_reach=2)
    scores = h[0] @ w["match.weight"] @ memory[0].T
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 3).numpy()[0]
    for t, centre in enumerate([3, 4, 5, 6]):  # three tokens came before
        near = [s for s in range(7) if abs(s - centre) <= 2]
        assert np.flatnonzero(found[t]).tolist() == near
        np.testing.assert_allclose(found[t, near], softmax(scores[t, near]), rtol=1e-12)
    behind = module.weights(Tensor(h[:, :1]), Tensor(memory), TEXT, 40).numpy()[0, 0]
    assert np.flatnonzero(behind).tolist() == [4, 5, 6]  # the end of the source, not of its padding


def test_predictive_attention_chooses_its_place():
    module, w = alignment(attend="predictive", attention_reach=2)
    place = 7 / (1 + np.exp(-np.tanh(h[0] @ w["place.weight"].T) @ w["place_score.weight"][0]))
    scores = h[0] @ w["match.weight"] @ memory[0].T
    found = module.weights(Tensor(h), Tensor(memory), TEXT, 0).numpy()[0]
    for t in range(4):
        near = [s for s in range(7) if abs(s - place[t]) <= 2]
        bell = np.exp(-((near - place[t]) ** 2) / (2 * (2 / 2) ** 2))
        np.testing.assert_allclose(found[t, near], softmax(scores[t, near]) * bell, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mixer": "lstm", "positions": "rotary"}, "--positions is a setting of the Transformer, not of --mixer lstm"),
        ({"mixer": "rnn", "recompute": True}, "--recompute is a setting of the Transformer, not of --mixer rnn"),
        ({"attend": "none"}, "--attend is a setting of models of recurrent layers, not of --mixer attention"),
        ({"mixer": "lstm", "attend": "none", "input_feeding": True}, "--input_feeding feeds what attention found, and"),
    ],
)
def test_settings_of_the_other_kind_are_refused(settings, reason):
    with pytest.raises(OptionError, match=reason):
        Seq2SeqOptions(**settings).check(learns_tokenizer=True)


LETTERS = "abcdef"


def trained(steps=400, **settings):
    """A model that reverses four letters, its tokenizer, and pairs that it did not see."""
    tokenizer = CharTokenizer(LETTERS, ("<pad>", "<bos>", "<eos>", "<unk>"))
    texts = ["".join(np.random.default_rng(i).choice(list(LETTERS), 2 + i % 3)) for i in range(400)]
    ids = {name: tokenizer.specials[f"<{name}>"] for name in ("pad", "bos", "eos")}
    config = replace(CONFIG, vocab_size=tokenizer.vocab_size, **ids, n_embd=32, **settings)
    with random_key(1):
        model = RecurrentSeq2Seq(config)
    optimizer = AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        chosen = texts[40:][step * 40 % 320 :][:40]
        sources = [tokenizer.encode(text) for text in chosen]
        targets = [[ids["bos"], *source[::-1], ids["eos"]] for source in sources]
        optimizer.zero_grad()
        loss = model.loss(tuple(Tensor(pad_rows(rows, ids["pad"])) for rows in (sources, targets)))
        loss.backward()
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
    return model.eval(), tokenizer, texts[:40]


def test_with_attention_it_learns_to_reverse_and_looks_where_the_letter_is():
    model, tokenizer, texts = trained(input_feeding=True)
    found = [best.text for (best,) in translate(model, tokenizer, texts, beam=2)]
    right = sum(text[::-1] == written for text, written in zip(texts, found, strict=True))
    assert right >= 36, found
    shown = attention_weights(model, tokenizer, "abcd", tokenizer.encode("dcba"))
    assert shown.weights.shape == (1, 1, 5, 4)
    np.testing.assert_allclose(shown.weights.sum(-1), 1, rtol=1e-5)


def test_weights_for_display_are_those_of_the_prediction():
    """Step by step with the states, as all at once."""
    model = lively(lambda: RecurrentSeq2Seq(replace(CONFIG, n_layer=2, input_feeding=True)), "float64").eval()
    source, target = Tensor(rng.integers(3, 30, (1, 8))), Tensor(rng.integers(3, 30, (1, 5)))
    with no_grad():
        found, (states_memory, mask, states) = model.alignments(source, target), model.encode(source)
        logits = []
        for t in range(5):
            one, states = model.decode(target[:, t : t + 1], states_memory, mask, states, t)
            logits.append(one.numpy())
        np.testing.assert_allclose(np.concatenate(logits, 1), model(source, target).numpy(), rtol=0, atol=1e-12)
    assert found.shape == (5, 8)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-12)


def test_a_model_without_attention_has_none_to_show():
    model, tokenizer, _ = trained(steps=1, attend="none")
    with pytest.raises(UserError, match=r"^this model of recurrent layers \(--attend none\) has no cross-attention$"):
        attention_weights(model, tokenizer, "abc", [5])


def test_reversal_of_any_length():
    lengths = {len(source) for source, target in toy_pairs("reverse-long", 2000) if source == target[::-1]}
    assert lengths == set(range(5, 41))
