"""The recorded weights of the cross-attention are those that the model uses; their plot."""

import math

import numpy as np
import pytest

from seq2seq.attention import CrossAttention, cross_attention, plot_attention
from seq2seq.config import Seq2SeqConfig
from seq2seq.data import SPECIALS
from seq2seq.model import Seq2Seq
from seq2seq.translate import translate
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cli.errors import UserError
from tinygrad_lite.device import random_key
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.tokenizers.base import UNKNOWN
from tinygrad_lite.tokenizers.char import CharTokenizer
from tinygrad_lite.transformer import MultiHeadAttention

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


@pytest.mark.parametrize("norm_first", [True, False])
def test_rows_are_the_weights_of_the_generating_step(norm_first):
    model = make_model(norm_first=norm_first)
    model.train()  # dropout must not reach the picture
    tokens = TOKENIZER.encode("ca b")
    found = cross_attention(model, TOKENIZER, "ab $", [*tokens, TOKENIZER.specials["<eos>"]])
    assert (found.source, found.target) == (["a", "b", "·", "$"], ["c", "a", "·", "b", "<eos>"])
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
    q = (x.numpy()[0] @ block.cross.query.weight.numpy().T + block.cross.query.bias.numpy()).reshape(5, 2, width // 2)
    k = (memory.numpy()[0] @ block.cross.key.weight.numpy().T + block.cross.key.bias.numpy()).reshape(4, 2, width // 2)
    scores = np.einsum("thd,shd->hts", q, k) / math.sqrt(width // 2)
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(found.weights[0], expected, atol=1e-5)


def test_the_model_is_left_unchanged():
    model = make_model()
    model.eval()
    before = translate(model, TOKENIZER, ["abc"])
    cross_attention(model, TOKENIZER, "abc", before[0][0].tokens)
    assert all(isinstance(block.cross, MultiHeadAttention) for block in model.decoder)
    assert translate(model, TOKENIZER, ["abc"]) == before
    with pytest.raises(ValueError, match="the sentence is empty"):
        cross_attention(model, TOKENIZER, "", [])


def test_a_mask_applies_to_the_weights_too():
    attention = make_model().decoder[0].cross
    x = Tensor(np.random.default_rng(0).normal(size=(1, 3, 16)).astype(np.float32))
    mask = Tensor(np.array([True, False, True]).reshape(1, 1, 1, 3))
    weights = attention.weights(x, mask=mask).numpy()
    assert (weights[..., 1] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_the_plot_has_a_chart_for_each_head(tmp_path):
    pytest.importorskip("matplotlib")
    found = cross_attention(make_model(), TOKENIZER, "ab $$", TOKENIZER.encode("c"))
    plot_attention(found, tmp_path / "a.svg")
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for words in ("layer 1, head 1", "layer 2, head 2", ">·<", ">$<", "&lt;eos&gt;"):
        assert words in picture
    assert picture.count("layer ") == 4
    plot_attention(found, tmp_path / "b.svg")
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes()
    large = CrossAttention(["a"] * 500, ["b"] * 20, np.zeros((1, 2, 20, 500)))
    with pytest.raises(UserError, match=r"172 by 4 inches, more than 100: use a shorter sentence"):
        plot_attention(large, tmp_path / "large.png")
    with pytest.raises(UserError, match="cannot be written"):
        plot_attention(found, tmp_path / "gone" / "a.svg")
