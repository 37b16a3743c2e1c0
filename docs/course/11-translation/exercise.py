"""Exercises of chapter 11: every ... is a blank to fill in."""

import numpy as np

from seq2seq.model import Seq2Seq
from tinygrad_lite import Tensor, no_grad


def shifted(targets: list[list[int]], bos: int, eos: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """What the decoder reads, and what it must predict at each position: two arrays (B, T) of integers.

    `targets` are translations without special tokens, of different lengths; T is the longest length plus one. Where
    a row has nothing more to predict, the second array has `pad`.
    """
    ...


def cross_attention(x: Tensor, memory: Tensor, is_text: Tensor, wq: Tensor, wk: Tensor, wv: Tensor) -> Tensor:
    """One head of cross-attention, with tensor methods only: x (B, T, C), memory (B, S, C) -> (B, T, D).

    is_text (B, S) is False where the source has padding. The weights are (D, C), a row for each output.
    """
    ...


def translate(model: Seq2Seq, source: Tensor, limit: int) -> list[int]:
    """The greedy translation of one sentence, source (1, S): at most `limit` tokens, without <bos> and <eos>.

    `model.encode(source)` gives the memory and its mask, `model.decode(target, memory, mask)` the logits (1, T, V);
    `model.config` has bos and eos.
    """
    with no_grad():
        ...


def smoothing_floor(label_smoothing: float, vocab_size: int) -> float:
    """The lowest loss that can be reached with label smoothing, in nats; without smoothing it is 0."""
    ...
