"""The heavy operations of a Transformer, one file each, to be read like short chapters.

A chapter states the formula, derives the gradient, and gives the *reference version*, a few lines of primitives: it is
the definition, and what the tests compare with. Below a line follows the *fused version*, a single node whose backward
pass is the derivation. `registry.py` says which of them runs. Fused versions for GPUs are in tinygrad_lite/cuda/.

Attention is written down in six places, because no other operation costs as much time and memory:

    attention.py            reference version     --composed, mixed dtypes, and devices without a fused version
    attention.py            fused version         CPU: training, evaluation, and generation without the fast step
    ../cuda/attention.py    block by block        GPU, unless the next one can do it
    ../cuda/flash_attention.py  no (T, S) array   GPU in bfloat16, D = 32, 64 or 128, and no mask or one per sequence
    gpt/fast_step.py        one query, no graph   CPU: a small GPT that generates token by token
    ../transformer.py       weights P alone       MultiHeadAttention.weights: the weights as numbers or as a picture

The first four are versions of `scaled_dot_product_attention`, and a call chooses among them. The last two are not: the
fast step is compared with `GPT.forward`, and the weights with the output of the layer.
"""

from typing import Any

from tinygrad_lite.functional.attention import scaled_dot_product_attention
from tinygrad_lite.functional.cross_entropy import cross_entropy
from tinygrad_lite.functional.dropout import dropout
from tinygrad_lite.functional.embedding import embedding
from tinygrad_lite.functional.gelu import gelu
from tinygrad_lite.functional.layer_norm import layer_norm
from tinygrad_lite.functional.linear import linear
from tinygrad_lite.functional.linear_gelu import linear_gelu
from tinygrad_lite.functional.softmax import log_softmax, logsumexp, softmax
from tinygrad_lite.spelling import no_such_name
from tinygrad_lite.tensor import Tensor

__all__ = [
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "linear_gelu",
    "log_softmax",
    "logsumexp",
    "scaled_dot_product_attention",
    "softmax",
]


def __getattr__(name: str) -> Any:
    raise no_such_name(__name__, name, Tensor)
