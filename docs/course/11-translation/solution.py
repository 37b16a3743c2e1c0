"""Solutions of chapter 11."""

import math

import numpy as np

from seq2seq.model import Seq2Seq
from tinygrad_lite import Tensor, no_grad


def shifted(targets: list[list[int]], bos: int, eos: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """What the decoder reads, and what it must predict at each position: two arrays (B, T) of integers.

    `targets` are translations without special tokens, of different lengths; T is the longest length plus one. Where
    a row has nothing more to predict, the second array has `pad`.
    """
    whole = np.full((len(targets), max(map(len, targets)) + 2), pad)
    for row, tokens in zip(whole, targets, strict=True):
        row[: len(tokens) + 2] = [bos, *tokens, eos]
    return whole[:, :-1], whole[:, 1:]


def cross_attention(x: Tensor, memory: Tensor, is_text: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    """One head of cross-attention, with tensor methods only: x (B, T, C), memory (B, S, C) -> (B, T, D).

    is_text (B, S) is False where the source has padding. The weights are (D, C), a row for each output.
    """
    query, key, value = x @ wq.T, memory @ wk.T, memory @ wv.T
    scores = query @ key.transpose(-2, -1) / math.sqrt(wq.shape[0])
    scores = scores.masked_fill(~is_text.unsqueeze(1), -math.inf)
    return scores.softmax() @ value


def translate(model: Seq2Seq, source: Tensor, limit: int) -> list[int]:
    """The greedy translation of one sentence, source (1, S): at most `limit` tokens, without <bos> and <eos>.

    `model.encode(source)` gives the memory and its mask, `model.decode(target, memory, mask)` the logits (1, T, V);
    `model.config` has bos and eos.
    """
    with no_grad():
        memory, mask = model.encode(source)
        found = []
        while len(found) < limit:
            logits = model.decode(Tensor([[model.config.bos, *found]]), memory, mask)
            token = int(logits.numpy()[0, -1].argmax())
            if token == model.config.eos:
                break
            found.append(token)
        return found


def smoothing_floor(label_smoothing: float, vocab_size: int) -> float:
    """The lowest loss that can be reached with label smoothing, in nats; without smoothing it is 0."""
    rest = label_smoothing / vocab_size
    right = 1 - label_smoothing + rest
    floor = -right * math.log(right)
    return floor - (vocab_size - 1) * rest * math.log(rest) if rest else floor
