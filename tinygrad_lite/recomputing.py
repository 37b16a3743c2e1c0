"""Activation checkpointing: what the backward pass needs is recomputed instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad_lite import autograd
from tinygrad_lite.autograd import Node, build_graph, collect
from tinygrad_lite.device import Array, draw_position, random_key
from tinygrad_lite.tensor import Tensor


def recompute(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Call a function and keep only its arguments: the backward pass computes it a second time.

    This is activation checkpointing. A Transformer of L blocks, each of which keeps `a` arrays for its derivatives and
    has one as its input, then keeps L + a arrays instead of L a; the price is a second forward pass.

    The first time, the graph of the function is dropped as soon as its value is known. When the backward walk reaches
    it, the function is called again, draws the same random numbers, and the walk continues in the graph that this
    creates. So each gradient is summed in the same order as without recomputation: all of them are the same to the last
    bit.

    Whatever the function uses besides its arguments, such as the parameters of a module, may require gradients too, and
    it may itself call `recompute`. Apart from random numbers, it must compute the same when it is called again, so it
    must not depend on anything that has changed since. If no graph is built, this is just a call.

    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> recompute(lambda x: (x * x).exp(), x).sum().backward()
    >>> x.grad.tolist() == (2 * x * (x * x).exp()).tolist()
    True

    Raises: TypeError if the function does not return a tensor; RuntimeError, from `backward`, if values that it used
        were overwritten in between.
    Reference: Chen et al. 2016, section 3 (arXiv:1604.06174).
    """
    if not autograd.builds_graph():
        return function(*args, **kwargs)
    key, drawn = draw_position()
    begin = Node("recompute", (), None, (), np.dtype(bool)).age  # older than anything the function makes
    given = [(x, x.version) for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    result = function(*args, **kwargs)
    if any(x.version != version for x, version in given):
        raise RuntimeError("recompute: the function wrote into an argument, so it could not compute the same again")
    if not isinstance(result, Tensor):
        raise TypeError(f"recompute: the function must return one tensor, not a {type(result).__name__}")
    if result._node is None or result._node.age <= begin:  # nothing to learn; or an argument, unchanged
        return result
    inside = collect(result._node, begin)

    def backward(dy: Array) -> Node:
        with random_key(*key, drawn=drawn), build_graph():
            return function(*args, **kwargs)._node

    y = Tensor.wrap(result.data)
    y.op, y._version = "recompute", result._version
    older = dict.fromkeys(parent for made in inside for parent in made.parents if parent and parent.age <= begin)
    y._node = Node("recompute", tuple(older), backward, y.shape, y.dtype)
    y._node.seen = tuple(used for made in inside for used in made.seen)
    return y
