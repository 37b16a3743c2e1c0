"""The recorded weights of the cross-attention are those that the model uses; the pictures of a translation model."""

import math
from pathlib import Path

import numpy as np
import pytest

import train
from seq2seq.attention import attention_weights
from seq2seq.config import Seq2SeqConfig
from seq2seq.data import SPECIALS
from seq2seq.model import Seq2Seq
from seq2seq.translate import translate
from studies import draw
from tests.tiny_runs import undone
from tinygrad_lite import functional as F
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.device import random_key
from tinygrad_lite.errors import UserError
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MultiHeadAttention
from workshop.tokenizers.base import UNKNOWN
from workshop.tokenizers.char import CharTokenizer

pytestmark = pytest.mark.every_device

TOKENIZER = CharTokenizer.train("abc $d", (*SPECIALS, UNKNOWN))


def make_model(**changes):
    ids = TOKENIZER.specials
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 40, "dropout": 0.3} | changes
    config = Seq2SeqConfig(TOKENIZER.vocab_size, ids["<pad>"], ids["<bos>"], ids["<eos>"], **settings)
    with random_key(3):
        model = Seq2Seq(config)
    for parameter in model.parameters():  # far from even, so that mistakes show
        parameter.data *= 6
    return model


def test_rows_of_a_model_with_parts_of_today_are_weights_too():
    """Of queries and keys after their norms, turned by their places, at another scale."""
    model = make_model(norm="rmsnorm", norm_weight=False, positions="rotary", qk_norm=True, attention_scale=0.7)
    model.eval()
    bos, source = TOKENIZER.specials["<bos>"], TOKENIZER.encode("ab $")
    for part, length in (("cross", 4), ("encoder", 4), ("decoder", 1)):
        found = attention_weights(model, TOKENIZER, "ab $", [], part)
        assert found.weights.shape[-1] == length
        np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
        with no_grad():
            memory, _ = model.encode(Tensor(np.array([source])))
            block = (model.encoder if part == "encoder" else model.decoder)[0]
            x = model._embed(Tensor(np.array([source if part == "encoder" else [bos]])), 0, "")
            if part == "cross":
                x = block.cross_norm(block._add(x, block.mixer_norm, block.mixer, {"is_causal": True}))
                layer, keys = block.cross, memory
            else:
                x = keys = block.mixer_norm(x)
                layer = block.mixer
            q, k = (
                norm(rows.reshape(*rows.shape[:2], 2, 8))
                for norm, rows in ((layer.query_norm, layer.query(x)), (layer.key_norm, layer.key(keys)))
            )
            q, k = (F.rotary(r, Tensor(np.arange(r.shape[1])), layer.frequencies) for r in (q, k))
            p = (q.transpose(1, 2) @ k.transpose(1, 2).transpose(-1, -2) * 0.7).softmax()
        np.testing.assert_allclose(found.weights[0], p.numpy()[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm_first", [True, False])
def test_rows_are_the_weights_of_the_generating_step(norm_first):
    model = make_model(norm_first=norm_first)
    model.train()  # dropout must not reach the picture
    tokens = TOKENIZER.encode("ca b")
    found = attention_weights(model, TOKENIZER, "ab $", [*tokens, TOKENIZER.specials["<eos>"]])
    assert (found.keys, found.queries) == (["a", "b", "·", "$"], ["c", "a", "·", "b", "<eos>"])
    assert found.weights.shape == (2, 2, 5, 4)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
    assert found.weights.std() > 0.01
    # Layer 0 by hand: softmax(Q K^T / sqrt(D)) of its own input.
    block, width = model.decoder[0], 16
    ids = Tensor(np.array([[TOKENIZER.specials["<bos>"], *tokens]]))
    with no_grad():
        memory, _ = model.encode(Tensor(np.array([TOKENIZER.encode("ab $")])))
        x = model._embed(ids, 0, "target_positions")
        x = block._add(x, block.mixer_norm, block.mixer, {"is_causal": True})
        if norm_first:
            x = block.cross_norm(x)
        q, k = block.cross.query(x).numpy(), block.cross.key(memory).numpy()
    q, k = q.reshape(5, 2, width // 2), k.reshape(4, 2, width // 2)
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(width // 2)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(found.weights[0], expected, atol=1e-5)


def test_the_model_is_left_unchanged():
    model = make_model()
    model.eval()
    before = translate(model, TOKENIZER, ["abc"])
    attention_weights(model, TOKENIZER, "abc", before[0][0].tokens)
    assert all(isinstance(block.cross, MultiHeadAttention) for block in model.decoder)
    assert translate(model, TOKENIZER, ["abc"]) == before
    with pytest.raises(ValueError, match="the sentence is empty"):
        attention_weights(model, TOKENIZER, "", [])


def test_self_attention_is_recorded_too():
    """That of the encoder sees everything; that of the decoder reads <bos> first, and no later token."""
    model, tokens = make_model(), TOKENIZER.encode("ca b")
    encoder, decoder = (attention_weights(model, TOKENIZER, "ab $", tokens, part) for part in ("encoder", "decoder"))
    assert encoder.queries == encoder.keys == ["a", "b", "·", "$"]
    assert decoder.queries == decoder.keys == ["<bos>", "c", "a", "·", "b"]
    assert (encoder.is_causal, decoder.is_causal) == (False, True)
    for found in (encoder, decoder):
        np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
        assert np.triu(found.weights, 1).any() != found.is_causal
    x = model._embed(Tensor(np.array([TOKENIZER.encode("ab $")])), 0, "source_positions")
    block = model.encoder[0]
    np.testing.assert_allclose(encoder.weights[0], block.mixer.weights(block.mixer_norm(x)).numpy()[0], atol=1e-5)


# --- the command ----------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder with a checkpoint."""
    monkeypatch.chdir(tmp_path)
    with undone():
        arguments = "reverse --max_iters 0 --n_layer 2 --n_head 2 --n_embd 8 --positions learned --toy_size 60"
        assert train.main([*arguments.split(), "--out_dir", "run", "--workers", "1"]) == 0
        yield


def test_every_picture_can_be_drawn(run, capsys):

    def drawn(command, array):
        assert draw.main([*command.split(), "--out", "drawn.npz"]) == 0
        return np.load("drawn.npz")[array]

    assert drawn("attention run --text abc --beam 2", "weights").shape[:2] == (2, 2)
    codes = []
    for part in ("encoder", "decoder"):
        assert drawn(f"attention run --text abc --part {part} --layer 2", "weights").shape[:2] == (1, 2)
        codes.append(drawn(f"positions run --part {part} --length 5", "codes"))
        assert codes[-1].shape == (5, 8)
    assert (codes[0] != codes[1]).all()
    assert draw.main(["neighbours", "run", "--tokens", "a", "--top", "3"]) == 0
    assert len(capsys.readouterr().out.split()) == 7
    pytest.importorskip("matplotlib")
    assert draw.main(["attention", "run", "--text", "abc"]) == 0
    picture = Path("attention.svg").read_text(encoding="utf-8")
    assert "layer 2, head 2" in picture
    assert "Cross-attention of run" in picture


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["attention", "run"], "give the model something to read"),
        (["attention", "run", "--text", "a" * 100], "--text has 100 tokens, but the model reads at most 32"),
        (["attention", "nowhere", "--text", "a"], "there is no checkpoint"),
        (["attention", "run", "--text", "a", "--part", "both"], "must be one of cross, encoder, decoder"),
    ],
)
def test_mistakes_give_one_sentence(run, words, reason):
    with pytest.raises(UserError, match=reason):
        draw.main(words)
