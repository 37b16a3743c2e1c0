"""What happens inside a GPT while it reads a text: attention, the stream, and what each part adds to it.

    found = look_inside(model, ids)
    found.attention[2, 0]    # (T, T): layer 2, head 0; row t says which tokens position t attends to
    found.stream[1]          # (T, C): the stream after the first block

The stream is the vector of every position that runs through all blocks; each part adds its output to it. Read early,
through the final norm and the output matrix, it says what the model would predict if the remaining blocks did nothing.

References: Vaswani et al. 2017, section 3.2; Elhage et al. 2021 ("A mathematical framework for transformer circuits")
on the stream; nostalgebraist 2020 on reading it early (the "logit lens").
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from extra import inside
from gpt.model import GPT
from text.tokenizers.base import Tokenizer
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.errors import UserError
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

    Raises: ValueError if there are no ids, or more than block_size; UserError if the model has another mixer.
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
        raise UserError(f"this model was trained with --mixer {mixer}, but only --mixer attention can be looked at")


def self_attention(model: GPT, tokenizer: Tokenizer, ids: Sequence[int]) -> inside.Attention:
    """The self-attention of each layer and head while the model reads ids, for a picture."""
    tokens = inside.pieces(tokenizer, ids)
    return inside.Attention(tokens, tokens, look_inside(model, ids).attention, is_causal=True)
