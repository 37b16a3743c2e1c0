"""A model without some of its parts, for as long as it takes to measure what they were worth.

with without_heads(model, [(0, 3)]):    # the fourth head of the first layer
    ...
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from gpt.model import GPT
from tinygrad_lite.nn import Parameter


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
