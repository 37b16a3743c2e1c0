"""The heavy operations of a Transformer, one file each, to be read like short chapters.

A chapter states the formula, derives the gradient, gives the *composed* version (a few lines over the primitives:
the definition, and the oracle of the tests) and then the *fused* one (a single node whose backward follows the
derivation), and pairs the two. `registry.py` says how the pair is chosen from.
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
from tinygrad_lite.functional.relu_squared import relu_squared
from tinygrad_lite.functional.rms_norm import rms_norm
from tinygrad_lite.functional.rotary import rotary
from tinygrad_lite.functional.softmax import log_softmax, logsumexp, softmax
from tinygrad_lite.functional.swiglu import swiglu
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
    "relu_squared",
    "rms_norm",
    "rotary",
    "scaled_dot_product_attention",
    "softmax",
    "swiglu",
]


def __getattr__(name: str) -> Any:
    raise no_such_name(__name__, name, Tensor)
