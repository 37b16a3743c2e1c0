"""A complete GPT in NumPy: the forward pass of gpt/model.py with GPT-2's parts, on the weights of such a model."""

import math

import numpy as np

erf = np.vectorize(math.erf)


def norm(x, gain):
    """Layer norm of the last axis, with a gain (C,)."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain


def softmax(scores):
    """Weights that add up to 1, in each row."""
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x, w, n_head):
    """Causal self-attention of one text: (T, C) -> (T, C)."""

    def heads(part):  # (T, C) -> (H, T, D)
        return (x @ w[f"mixer.{part}.weight"].T).reshape(len(x), n_head, -1).swapaxes(0, 1)

    q, k, v = heads("query"), heads("key"), heads("value")
    scores = q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    future = np.triu(np.ones(scores.shape[1:], bool), 1)
    out = softmax(np.where(future, -np.inf, scores)) @ v
    return out.swapaxes(0, 1).reshape(x.shape) @ w["mixer.output.weight"].T


def feed_forward(x, w):
    """Each position by itself: (T, C) -> (T, C)."""
    u = x @ w["mlp.up.weight"].T
    return u * (1 + erf(u / 2**0.5)) / 2 @ w["mlp.down.weight"].T  # the factor of u makes it GELU


def gpt(w, ids, n_layer, n_head):
    """The logits after each token: ids (T,) -> (T, V). w has the weights by the names of `model.state_dict()`."""
    x = w["token_embedding.weight"][ids] + w["position_embedding.weight"][: len(ids)]
    for layer in range(n_layer):
        start = f"blocks.{layer}."
        block = {name.removeprefix(start): weight for name, weight in w.items() if name.startswith(start)}
        x = x + attention(norm(x, block["mixer_norm.weight"]), block, n_head)
        x = x + feed_forward(norm(x, block["mlp_norm.weight"]), block)
    return norm(x, w["final_norm.weight"]) @ w["token_embedding.weight"].T
