"""The plain recurrent network: one state, rewritten at every step, must hold everything read so far.

    h_t = tanh(x_t + W h_(t-1))        t = 1 .. T,   h_0 = 0 unless a state is given

for each sequence of the batch. x_t is the result of a linear map of the input at step t, U u_t + b; since nothing in it
depends on earlier steps, all steps are one matrix product, computed beforehand. The products with h_(t-1) cannot be:
step t needs the result of step t - 1. So T steps are T small products one after the other, however many processors
there are.

Gradient, "backpropagation through time": the T steps are a deep network whose layers share W. The state h_t is used
twice, as a result and by step t + 1. With dh_t = dL/dh_t, summed over both uses, and tanh' = 1 - tanh^2,

    dz_t     = dh_t * (1 - h_t^2)                        z_t = x_t + W h_(t-1), the input of tanh
    dh_(t-1) = dL/dh_(t-1) as a result + W^T dz_t        from the last step to the first
    dx_t     = dz_t
    dW       = sum_t dz_t h_(t-1)^T

On its way from a result at step t to the state n steps earlier, a gradient passes n times through W^T and a factor of
at most 1. If the singular values of W are below 1 it shrinks exponentially, and a saturated tanh adds to that; if some
are above, it can grow without limit. LSTM (lstm.py) and attention are answers to this.

A mask marks the steps that are text: at all others, the state is unchanged, and no gradient reaches x. So padding
changes nothing, wherever it is.

The fused version takes time as the first axis, so that each step reads and writes one block of memory, and computes dW
as one product over all steps at the end.

References: Elman 1990, "Finding Structure in Time"; Werbos 1990 on backpropagation through time; Bengio et al. 1994 on
vanishing gradients.
"""

import numpy as np

from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def rnn_composed(x: Tensor, weight: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """The states h_1 .. h_T of a plain recurrent network.

    Args:
        x: (B, T, H), the input of each step after its linear map; T of at least 1.
        weight: W (H, H), applied to the previous state.
        state: h_0 (B, H); None: zeros.
        mask: truth values (B, T), True where the state is rewritten; None: everywhere.
    Returns: (B, T, H), dtype of x.
    Raises: ValueError if the shapes do not fit.
    """
    h, states = initial_state("rnn", 1, 1, x, weight, state, mask), []
    for t in range(x.shape[1]):
        new = (x[:, t] + h @ weight.transpose(0, 1)).tanh()
        h = new if mask is None else mask[:, t : t + 1].where(new, h)
        states.append(h)
    return Tensor.stack(*states, axis=1)


def rnn_fused(x: Tensor, weight: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """`rnn_composed` in one node, which keeps the states."""
    if not same_floats(x, weight, state):
        return rnn_composed(x, weight, state, mask)
    state = initial_state("rnn", 1, 1, x, weight, state, mask)
    batch, steps, width = x.shape
    w, z = weight.data, x.data.swapaxes(0, 1)
    h = np.empty((steps + 1, batch, width), z.dtype)  # h[t] is the state before step t
    h[0] = state.data
    stays = None if mask is None else ~mask.data.T[..., None]
    for t in range(steps):
        np.matmul(h[t], w.T, out=h[t + 1])
        h[t + 1] += z[t]
        np.tanh(h[t + 1], out=h[t + 1])
        if stays is not None:
            np.copyto(h[t + 1], h[t], where=stays[t])

    def backward(dy):
        dz = np.square(h[1:])
        np.subtract(1, dz, out=dz)  # tanh'
        dh = np.zeros_like(h[0])
        for t in reversed(range(steps)):
            dh += dy[:, t]
            dz[t] *= dh
            if stays is None:
                np.matmul(dz[t], w, out=dh)
            else:
                np.copyto(dz[t], 0, where=stays[t])
                dh = np.where(stays[t], dh, dz[t] @ w)
        dw = dz.reshape(-1, width).T @ h[:-1].reshape(-1, width)
        return dz.swapaxes(0, 1), dw, dh

    return node(h[1:].swapaxes(0, 1), (x, weight, state), backward, "rnn")


def same_floats(*tensors: Tensor | None) -> bool:
    """Whether all tensors have the same type, float32 or float64, as the fused versions require."""
    kinds = {tensor.dtype for tensor in tensors if tensor is not None}
    return len(kinds) == 1 and kinds <= {np.dtype(np.float32), np.dtype(np.float64)}


def initial_state(
    name: str, gates: int, parts: int, x: Tensor, weight: Tensor, state: Tensor | None, mask: Tensor | None
) -> Tensor:
    """The state (B, parts H) before the first step, zeros if none is given.

    Raises: ValueError if the shapes do not fit: x (B, T, gates H), weight (gates H, H).
    """
    if x.ndim != 3 or 0 in x.shape[1:] or x.shape[2] % gates:
        wide = "H" if gates == 1 else f"{gates} H"
        raise ValueError(f"{name}: x must be (B, T, {wide}) with T and H of at least 1, not {x.shape}")
    batch, steps, width = x.shape
    expected = {"weight": (weight, (width, width // gates)), "state": (state, (batch, parts * width // gates))}
    for part, (tensor, shape) in (expected | {"mask": (mask, (batch, steps))}).items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name}: x {x.shape} needs a {part} of shape {shape}, not {tensor.shape}")
    if mask is not None and mask.dtype != np.bool_:
        raise ValueError(f"{name}: mask must hold truth values, not {mask.dtype}; write ids != pad")
    return Tensor.zeros(*expected["state"][1], dtype=x.dtype, device=x.device) if state is None else state


rnn = ReferenceAndFused(rnn_composed, cpu=rnn_fused)
