"""The heavy operations of Transformers and convolutional networks, one file each, to be read like short chapters.

A chapter states the formula, derives the gradient, and gives the *reference version*, a few lines of primitives: it is
the definition that the tests compare everything else with. Below a line, where a first reader may stop, comes the
*fused version*, a single node whose backward pass computes the derived formulas. `registry.py` chooses which of them
runs. Fused versions for GPUs are in tinygrad_lite/cuda/.

Attention exists six times. The first four are versions of `scaled_dot_product_attention`; each call runs one of them.

    what                       where                     when it runs
    reference version          attention.py              --composed; a mask of floats, which is added to the scores;
                                                         queries, keys and values of different dtypes; on the CPU, of
                                                         dtypes other than NumPy's floats
    fused version              attention.py              on the CPU, otherwise
    blocks of queries          cuda/attention.py         on a GPU, where the next one cannot
    without the (T, S) array   cuda/flash_attention.py   on a GPU in bfloat16, if D is 32, 64 or 128 and a mask, if any,
                                                         is the same for all heads and queries of a sequence
    one query                  gpt/fast/step.py          when a small GPT generates on the CPU, token by token
    one query, on a GPU        cuda/decode.py            when a GPT generates on a GPU, token by token
"""

from tinygrad_lite.functional.attention import scaled_dot_product_attention
from tinygrad_lite.functional.conv import conv2d
from tinygrad_lite.functional.cross_entropy import binary_cross_entropy_with_logits, cross_entropy
from tinygrad_lite.functional.dropout import dropout
from tinygrad_lite.functional.embedding import embedding
from tinygrad_lite.functional.gelu import gelu, linear_gelu
from tinygrad_lite.functional.layer_norm import layer_norm
from tinygrad_lite.functional.linear import linear
from tinygrad_lite.functional.pool import avg_pool2d, max_pool2d
from tinygrad_lite.functional.relu_squared import relu_squared
from tinygrad_lite.functional.residual import residual
from tinygrad_lite.functional.rms_norm import rms_norm
from tinygrad_lite.functional.rotary import rotary
from tinygrad_lite.functional.softmax import log_softmax, logsumexp, softmax
from tinygrad_lite.functional.swiglu import swiglu

__all__ = """
    avg_pool2d binary_cross_entropy_with_logits conv2d cross_entropy dropout embedding gelu layer_norm linear
    linear_gelu log_softmax logsumexp max_pool2d relu_squared residual rms_norm rotary scaled_dot_product_attention
    softmax swiglu
""".split()
