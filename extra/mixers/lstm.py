"""Long short-term memory: a state that is kept by addition, and gates that decide what enters, stays and is shown.

    i_t = s(x_t^i + W_i h_(t-1))       input gate       how much of g is written         s(z) = 1 / (1 + e^-z)
    f_t = s(x_t^f + W_f h_(t-1))       forget gate      how much of the cell stays
    g_t = tanh(x_t^g + W_g h_(t-1))    candidate        what may be written
    o_t = s(x_t^o + W_o h_(t-1))       output gate      how much of the cell is shown
    c_t = f_t * c_(t-1) + i_t * g_t    cell
    h_t = o_t * tanh(c_t)              state

As in the plain network (rnn.py), x_t is the result of a linear map of the input, here (x^i, x^f, x^g, x^o) of 4 H
numbers, and W (4 H, H) consists of the four matrices, stacked. The forget gate came three years after the rest; without
it (f = 1) a cell can only grow.

Gradient. c_(t-1) reaches c_t through a multiplication by f_t and an addition, not through a matrix. With f near 1, the
gradient from a later step reaches many steps back almost undiminished: that is what the cell was invented for. With
dh_t and dc_t for dL/dh_t and dL/dc_t, each summed over all its uses, from the last step to the first:

    do_t = dh_t * tanh(c_t)
    dc_t = dc_t + dh_t * o_t * (1 - tanh(c_t)^2)
    di_t = dc_t * g_t        dg_t = dc_t * i_t        df_t = dc_t * c_(t-1)
    dz_t = (di i (1 - i),  df f (1 - f),  dg (1 - g^2),  do o (1 - o))       the inputs of the four functions
    dc_(t-1) = dc_t * f_t    dh_(t-1) = W^T dz_t      each added to the gradients from its other uses
    dx_t = dz_t              dW = sum_t dz_t h_(t-1)^T

The fused version computes all four gates of a step with one product and one tanh, since s(z) = (1 + tanh(z / 2)) / 2.

References: Hochreiter, Schmidhuber 1997, "Long Short-Term Memory"; Gers et al. 2000 on the forget gate; Jozefowicz et
al. 2015 on starting with it open. The order of the gates, i, f, g, o, is torch's.
"""

import numpy as np

from extra.mixers.rnn import initial_state, same_floats
from tinygrad_lite.functional.registry import ReferenceAndFused
from tinygrad_lite.tensor import Tensor, node


def lstm_composed(x: Tensor, weight: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """The states and cells of an LSTM, side by side: y_t = (h_t, c_t).

    Args:
        x: (B, T, 4 H), the input of each step after its linear map, for i, f, g and o; T of at least 1.
        weight: W (4 H, H), applied to the previous state.
        state: (h_0, c_0), (B, 2 H); None: zeros.
        mask: truth values (B, T), True where state and cell are rewritten; None: everywhere.
    Returns: (B, T, 2 H), dtype of x.
    Raises: ValueError if the shapes do not fit.
    """
    y, steps = initial_state("lstm", 4, 2, x, weight, state, mask), []
    for t in range(x.shape[1]):
        h, c = y.chunk(2, axis=-1)
        i, f, g, o = (x[:, t] + h @ weight.transpose(0, 1)).chunk(4, axis=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        new = (o.sigmoid() * c.tanh()).cat(c, axis=-1)
        y = new if mask is None else mask[:, t : t + 1].where(new, y)
        steps.append(y)
    return Tensor.stack(*steps, axis=1)


def lstm_fused(x: Tensor, weight: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
    """`lstm_composed` in one node, which keeps gates, states, cells and their tanh."""
    if not same_floats(x, weight, state):
        return lstm_composed(x, weight, state, mask)
    state = initial_state("lstm", 4, 2, x, weight, state, mask)
    batch, steps, width = x.shape[0], x.shape[1], weight.shape[1]
    w, dtype = weight.data, x.dtype
    halves = np.repeat(np.array([0.5, 0.5, 1, 0.5], dtype), width)  # tanh(z / 2) for i, f and o, tanh(z) for g
    rows = np.ascontiguousarray(w.T) * halves
    gates = np.multiply(x.data.swapaxes(0, 1), halves, out=np.empty((steps, batch, 4 * width), dtype))
    y = np.empty((steps + 1, batch, 2, width), dtype)  # y[t] is (h, c) before step t
    y[0] = state.data.reshape(batch, 2, width)
    shown = np.empty((steps, batch, width), dtype)  # tanh(c)
    stays = None if mask is None else ~mask.data.T[..., None]
    i, f, g, o = gates.reshape(steps, batch, 4, width).transpose(2, 0, 1, 3)
    for t in range(steps):
        (h, c), (new_h, new_c) = (y[n].swapaxes(0, 1) for n in (t, t + 1))
        z = gates[t]
        z += h @ rows
        np.tanh(z, out=z)
        for gate in (i[t], f[t], o[t]):
            gate += 1
            gate *= 0.5
        np.multiply(f[t], c, out=new_c)
        new_c += i[t] * g[t]
        np.tanh(new_c, out=shown[t])
        np.multiply(o[t], shown[t], out=new_h)
        if stays is not None:
            np.copyto(y[t + 1], y[t], where=stays[t][:, None])

    def backward(dy):
        dy = dy.reshape(batch, steps, 2, width)
        dz = np.empty_like(gates)
        di, df, dg, do = dz.reshape(steps, batch, 4, width).transpose(2, 0, 1, 3)
        dh, dc = np.zeros((2, batch, width), dtype)
        for t in reversed(range(steps)):
            dh += dy[:, t, 0]
            dc += dy[:, t, 1]
            through = dh * o[t]
            through *= 1 - shown[t] * shown[t]
            through += dc
            np.multiply(through, g[t] * i[t] * (1 - i[t]), out=di[t])
            np.multiply(through, y[t][:, 1] * f[t] * (1 - f[t]), out=df[t])
            np.multiply(through, i[t] * (1 - g[t] * g[t]), out=dg[t])
            np.multiply(dh, shown[t] * o[t] * (1 - o[t]), out=do[t])
            through *= f[t]
            if stays is None:
                dh, dc = dz[t] @ w, through
            else:
                np.copyto(dz[t], 0, where=stays[t])
                dh, dc = np.where(stays[t], dh, dz[t] @ w), np.where(stays[t], dc, through)
        dw = dz.reshape(-1, 4 * width).T @ y[:-1, :, 0].reshape(-1, width)
        return dz.swapaxes(0, 1), dw, np.concatenate([dh, dc], axis=1)

    result = y[1:].reshape(steps, batch, 2 * width).swapaxes(0, 1)
    return node(result, (x, weight, state), backward, "lstm")


lstm = ReferenceAndFused(lstm_composed, cpu=lstm_fused)
