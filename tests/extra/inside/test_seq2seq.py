"""The recorded weights of the cross-attention are those that the model uses; the pictures of a translation model."""

from pathlib import Path

import numpy as np
import pytest

from extra.inside.seq2seq import PARTS, attention_weights
from extra.seq2seq.config import Seq2SeqConfig
from extra.studies import draw
from seq2seq.data import SPECIALS
from seq2seq.model import Seq2Seq
from tests.gpt.saved_models import save
from text.tokenizers.base import UNKNOWN
from text.tokenizers.char import CharTokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.nn import recorded
from tinygrad_lite.random import random_key
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MultiHeadAttention

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


TODAY = {"norm": "rmsnorm", "norm_weight": False, "positions": "rotary", "qk_norm": True, "attention_scale": 0.7}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("settings", [{}, {"norm_first": False}, TODAY])
def test_rows_are_the_weights_with_which_each_layer_computes(settings, part):
    """Encoder and cross-attention see the whole sentence; the decoder reads <bos> first, and no later token."""
    model, source, written = make_model(**settings), TOKENIZER.encode("ab $"), TOKENIZER.encode("ca b")
    model.train()  # dropout must not reach the picture
    found = attention_weights(model, TOKENIZER, "ab $", [*written, TOKENIZER.specials["<eos>"]], part)
    keys, target = ["a", "b", "·", "$"], ["c", "a", "·", "b"]
    expected = {"cross": ([*target, "<eos>"], keys), "encoder": (keys, keys), "decoder": (["<bos>", *target],) * 2}
    assert (found.queries, found.keys) == expected[part]
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
    assert found.weights.std() > 0.01
    assert found.is_causal == (part == "decoder") != np.triu(found.weights, 1).any()
    stack = model.encoder if part == "encoder" else model.decoder
    layers = [block.cross if part == "cross" else block.mixer for block in stack]
    with no_grad(), recorded(model, MultiHeadAttention) as calls:
        model.eval()(*(Tensor(np.array([ids])) for ids in (source, [TOKENIZER.specials["<bos>"], *written])))
    for weights, layer in zip(found.weights, layers, strict=True):
        (call,) = [call for call in calls if call.module is layer]
        values = layer.value(call.kwargs.get("memory", call.args[0])).numpy()[0].reshape(-1, 2, 8)
        heads = np.einsum("hts,shd->thd", weights, values).reshape(1, -1, 16)
        np.testing.assert_allclose(layer.output(Tensor(heads)).numpy(), call.result.numpy(), rtol=1e-3, atol=1e-4)


# --- the command ----------------------------------------------------------------------------------------------


def test_every_picture_can_be_drawn(workplace, ran):
    model = make_model(positions="learned")
    save(Path("run/last.safetensors"), "seq2seq", model, model.state_dict(), TOKENIZER)

    def drawn(command, array):
        ran(draw.main, *command.split(), "--out", "drawn.npz")
        return np.load("drawn.npz")[array]

    assert drawn("attention run --text abc --beam 2", "weights").shape[:2] == (2, 2)
    codes = []
    for part in ("encoder", "decoder"):
        assert drawn(f"attention run --text abc --part {part} --layer 2", "weights").shape[:2] == (1, 2)
        codes.append(drawn(f"positions run --part {part} --length 5", "codes"))
        assert codes[-1].shape == (5, 16)
    assert (codes[0] != codes[1]).all()
    assert len(ran(draw.main, "neighbours", "run", "--tokens", "a", "--top", 3).out.split()) == 7
