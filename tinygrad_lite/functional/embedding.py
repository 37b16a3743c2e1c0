"""Embedding: each token number becomes a vector, a row of a learned table.

    ids: (...) integers in [0, V)    weight: (V, C)    y = weight[ids]: (..., C)

It is the product of one-hot rows with the table, y = onehot(ids) W, without the multiplications by zero. So the
gradient is dW = onehot(ids)^T dy: row v of dW is the sum of dy over all positions at which token v occurs.
"""

from tinygrad_lite.autograd import Piece
from tinygrad_lite.device import add_rows
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def embedding_composed(ids: Tensor, weight: Tensor) -> Tensor:
    """y = weight[ids], the rows of the table with these numbers.

    Args:
        ids: (...) integer tensor.
        weight: (V, C) float table.
    Returns: (..., C).
    Raises: ValueError if ids are not integers or, on the CPU, not in [0, V).
    """
    check_embedding(ids, weight)
    return weight[ids]


def check_embedding(ids: Tensor, weight: Tensor) -> None:
    """Raise ValueError if ids are not integers or, on the CPU, not in the table."""
    if ids.dtype.kind not in "iu":
        raise ValueError(f"embedding: ids must be integers, not {ids.dtype}")
    # On a GPU, checking would make the host wait.
    if ids.device == "cpu" and (bad := ids.data[(ids.data < 0) | (ids.data >= len(weight))]).size:
        raise ValueError(f"embedding: token {bad[0]} is outside the table of {len(weight)} rows")


# --- the fused version: a first reader may stop here -----------------------------------------------------------


def embedding_fused(ids: Tensor, weight: Tensor) -> Tensor:
    """`embedding_composed` with a faster backward pass.

    The primitive's backward adds the rows of dy one by one; `add_rows` (device.py) sums all rows of a token at once,
    and adds them to the gradient that is already there: a batch reaches few rows of a large table.
    """
    check_embedding(ids, weight)
    numbers, shape = ids.data.copy(), weight.shape  # the caller may write into ids before backward

    def backward(dy):
        return (Piece(shape, add_rows, numbers.reshape(-1), dy.reshape(numbers.size, shape[1])),)

    return node(weight.data[numbers], (weight,), backward, "embedding", linear=True)


embedding = ReferenceAndFused(embedding_composed, cpu=embedding_fused, cuda="tinygrad_lite.cuda.embedding")
