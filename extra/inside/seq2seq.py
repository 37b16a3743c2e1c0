"""What do encoder and decoder attend to? The weights of attention as numbers; `extra.studies.draw` plots them.

For every target token, each head of each decoder layer has weights over the source tokens, which sum to 1: they show
which German word corresponds to which English one, and where the word order changes. In self-attention, source tokens
attend to source tokens, and target tokens to those before them.

    found = attention_weights(model, tokenizer, "Der Mann liest.", tokens)
    found.weights[0, 2]      # (T, S): layer 0, head 2

Reference: Vaswani et al. 2017, section 3.2.3.
"""

from collections.abc import Sequence

import numpy as np

from extra.inside import Attention, pieces, weights_of
from extra.mixers.seq2seq import Alignment
from seq2seq.data import BOS, EOS
from seq2seq.model import Seq2Seq
from text.tokenizers.base import Tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import recorded
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.transformer import MultiHeadAttention

PARTS = {"cross": "cross-attention"} | {side: f"self-attention of the {side}" for side in ("encoder", "decoder")}


def attention_weights(
    model: Seq2Seq, tokenizer: Tokenizer, sentence: str, translation: Sequence[int], part: str = "cross"
) -> Attention:
    """The attention of each layer and head when the model produces this translation of the sentence.

    Args:
        translation: the tokens, as in `Translation.tokens`; <eos> is added if it is missing.
        part: whose attention, one of PARTS.
    Raises: ValueError if the sentence has no token; UserError if the model has no such attention.
    """
    block_size, bos, eos = model.config.block_size, tokenizer.specials[BOS], tokenizer.specials[EOS]
    source = tokenizer.encode(sentence)[:block_size]
    if not source:
        raise ValueError("attention_weights: the sentence is empty, so there is nothing to attend to")
    # Token t is predicted when the decoder reads token t - 1, so the input begins with <bos>.
    target = [bos, *(token for token in translation if token != eos)][:block_size]
    inputs = [Tensor(np.array([ids]), device=model.token_embedding.weight.device) for ids in (source, target)]
    if model.config.is_recurrent and (part != "cross" or model.config.attend == "none"):
        raise UserError(f"this model of recurrent layers (--attend {model.config.attend}) has no {PARTS[part]}")
    with no_grad(), model.evaluating(), recorded(model, MultiHeadAttention, Alignment) as calls:
        model(*inputs)
    if model.config.is_recurrent:  # one layer with one head; with input feeding, a call for each token
        weights = [np.concatenate([weights_of(call) for call in calls])[None]]
    else:
        start, end = ("decoder.", ".cross") if part == "cross" else (f"{part}.", ".mixer")
        weights = [weights_of(call) for call in calls if call.name.startswith(start) and call.name.endswith(end)]
    read, decoded = pieces(tokenizer, source), pieces(tokenizer, target)
    sides = {"cross": ([*decoded[1:], EOS], read), "encoder": (read, read), "decoder": (decoded, decoded)}
    return Attention(*sides[part], np.stack(weights), is_causal=part == "decoder")
