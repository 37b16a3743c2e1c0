"""Checks of chapter 4."""

import math

import numpy as np
from letters import HELD_OUT, TRAIN

from text.tokenizers.bpe import BPETokenizer
from text.tokenizers.byte import ByteTokenizer
from text.tokenizers.char import CharTokenizer
from tinygrad_lite import Tensor
from tinygrad_lite import functional as F


def _count(ids, vocab_size):
    counts = np.zeros((vocab_size, vocab_size))
    np.add.at(counts, (ids[:-1], ids[1:]), 1)
    return counts


def PERPLEXITY(exercise):
    """Perplexity is e^loss, and the loss is the mean of -ln P: first the mean, then the power."""
    loss = (-math.log(1 / 2) - math.log(1 / 8)) / 2
    assert math.isclose(exercise.PERPLEXITY, math.exp(loss)), (
        f"a loss of {loss:.3f} nats per letter does not have the perplexity {exercise.PERPLEXITY}"
    )


def interpolated(exercise):
    """c(h·) is the sum of row h; keepdims=True lets it divide the row. Where it is 0, do not divide."""
    counts = np.array([[2.0, 1.0, 1.0], [0.0, 0.0, 0.0], [4.0, 0.0, 6.0]])
    lower = np.array([0.5, 0.2, 0.3])
    with np.errstate(all="ignore"):
        seen = exercise.interpolated(counts, lower, 1.0)[[0, 2]]
        probs = exercise.interpolated(counts, lower, 0.75)
    assert probs.shape == (3, 3), f"the shape of your result is {probs.shape}, it must be (V, V)"
    assert np.allclose(seen, [[0.5, 0.25, 0.25], [0.4, 0.0, 0.6]]), f"with weight 1, counts {counts[0]} give {seen[0]}"
    for h, row in enumerate(probs):
        assert np.isclose(row.sum(), 1), f"after counts of {counts[h]}, the probabilities {row} do not sum to 1"
    assert np.allclose(probs[1], lower), f"where nothing was counted, the probabilities are {probs[1]}"
    assert np.allclose(probs[2], [0.425, 0.05, 0.525]), f"with weight 0.75, counts {counts[2]} give {probs[2]}"

    tokenizer = CharTokenizer.train(TRAIN + HELD_OUT)
    counts = _count(tokenizer.encode(TRAIN), tokenizer.vocab_size - 1)  # the last is <unk>
    held_out = tokenizer.encode(HELD_OUT)
    lower = (counts.sum(0) + 1) / (counts.sum() + len(counts))
    loss = -np.log(exercise.interpolated(counts, lower, 0.8)[held_out[:-1], held_out[1:]]).mean()
    assert round(float(loss), 3) == 2.405, f"the held-out loss: yours is {loss:.3f}, it must be 2.405"


def bits_per_character(exercise):
    """1 bit is ln 2 nats. A token that stands for several characters shares its cost among them."""
    text, nats = HELD_OUT, 1000.0  # the text's -ln P, by whatever tokens it is predicted
    for tokenizer in (CharTokenizer.train(TRAIN + HELD_OUT), ByteTokenizer(), BPETokenizer.train(TRAIN, 300)):
        tokens = tokenizer.encode(text)
        answer = exercise.bits_per_character(nats / len(tokens), text, tokens)
        whole = answer * len(text)
        assert math.isclose(whole, nats / math.log(2)), (
            f"{len(text)} characters as {len(tokens)} tokens of {nats / len(tokens):.3f} nats: {answer:.3f} bits for "
            f"each character would be {whole:.1f} bits for the text, but its {nats:g} nats are {nats / math.log(2):.1f}"
        )


def gradient(exercise):
    """Sum q_v - [v = t] over the places of each h, as in the text; then L is a mean over the places of all letters."""
    rng = np.random.default_rng(4)
    ids = rng.choice(6, size=50, p=[0.4, 0.3, 0.1, 0.1, 0.1, 0.0])  # the last letter never occurs
    logits = Tensor(rng.standard_normal((6, 6)), requires_grad=True)
    F.cross_entropy(F.embedding(Tensor(ids[:-1]), logits), Tensor(ids[1:])).backward()
    right, answer = logits.grad.numpy(), exercise.gradient(logits.numpy().copy(), _count(ids, 6))
    assert np.shape(answer) == (6, 6), f"the shape of your result is {np.shape(answer)}, it must be (V, V)"
    h, v = np.unravel_index(np.argmax(np.nan_to_num(np.abs(answer - right), nan=np.inf)), right.shape)
    assert np.allclose(answer, right), (
        f"in row {h}, whose letter precedes {np.sum(ids[:-1] == h)} of {len(ids) - 1}, and column {v}, the derivative: "
        f"yours is {answer[h, v]:.4f}, it must be {right[h, v]:.4f}"
    )
