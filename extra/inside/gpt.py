"""What happens inside a GPT while it reads a text: attention, the stream, and what each part adds to it.

    found = look_inside(model, ids)
    found.attention[2, 0]    # (T, T): layer 2, head 0; row t says which tokens position t attends to
    found.stream[1]          # (T, C): the stream after the first block

The stream is the vector of every position that runs through all blocks; each part adds its output to it. Read early,
through the final norm and the output matrix, it says what the model would predict if the remaining blocks did nothing.

References: Vaswani et al. 2017, section 3.2; Elhage et al. 2021 ("A mathematical framework for transformer circuits")
on the stream; nostalgebraist 2020 on reading it early (the "logit lens").
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np

from extra import inside
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import UserError
from tinygrad_lite.nn import Parameter
from tinygrad_lite.tensor import Tensor


@dataclass(frozen=True)
class InsideGPT(inside.Inside):
    """What `look_inside` found in a GPT, with a vocabulary of V; the attention to later positions is 0.

    Attributes:
        logits: (L + 1, T, V), the stream read through the final norm and the output matrix; [-1] is the prediction.
    """

    logits: np.ndarray


def look_inside(model: GPT, ids: Sequence[int]) -> InsideGPT:
    """Run the model on ids and keep what is computed on the way.

    Raises: ValueError if there are no ids, or more than block_size; UserError if the model has no attention.
    """
    check_attention(model)
    if not ids:
        raise ValueError("look_inside: there are no tokens to read")
    device = model.token_embedding.weight.device
    found = inside.look_inside(model, Tensor(np.array([ids]), device=device))
    with no_grad():
        logits = [model.read(Tensor(x[None], device=device)).numpy()[0] for x in found.stream]
    return InsideGPT(**vars(found), logits=np.stack(logits))


def check_attention(model: GPT) -> None:
    """Raise UserError if the model has another layer in place of attention."""
    if (mixer := model.config.mixer) != "attention":
        raise UserError(f"this model was trained with --mixer {mixer}: it has no attention to look at")


def self_attention(model: GPT, tokenizer: Tokenizer, ids: Sequence[int]) -> inside.Attention:
    """The self-attention of each layer and head while the model reads ids, for a picture."""
    tokens = inside.pieces(tokenizer, ids)
    return inside.Attention(tokens, tokens, look_inside(model, ids).attention, is_causal=True)


def without_heads(model: GPT, heads: Collection[tuple[int, int]]) -> AbstractContextManager[None]:
    """Within this context these heads, each named as (layer, head) from 0, add nothing to the stream.

    The output matrix of attention sums what its heads found; here the columns that belong to these heads are 0.

    Raises: IndexError if the model has no such head.
    """
    columns = []
    for layer, head in heads:
        mixer = model.blocks[layer].mixer
        if not 0 <= head < mixer.n_head:
            raise IndexError(f"there is no head {head} in a layer of {mixer.n_head}")
        places = slice(None), slice(head * mixer.head_dim, (head + 1) * mixer.head_dim)
        columns.append((mixer.output.weight, places))
    return without(columns)


@contextmanager
def without(parts: Collection[tuple[Parameter, tuple]]) -> Iterator[None]:
    """Within this context parts of parameters, each an index into one, are 0."""
    before = []
    try:
        for parameter, places in parts:
            before.append((parameter, places, parameter.data[places].copy()))
            parameter.data[places] = 0
            parameter.mark_written()
        yield
    finally:
        for parameter, places, values in reversed(before):  # a part may be named twice
            parameter.data[places] = values
            parameter.mark_written()
