"""The translation model's data: a batch of sentence pairs is two rectangles, one of source and one of target tokens.

How pairs become batches is in training/pair_data.py.
"""

from collections.abc import Sequence

import numpy as np

from tinygrad_lite.generator import pad_rows
from tinygrad_lite.tensor import Tensor
from training.pair_data import Batch, Pair, PairData

BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
SPECIALS = (PAD, BOS, EOS)


class TranslationData(PairData):
    """Sentence pairs whose targets are between <bos> and <eos>."""

    def widths(self, pair: Pair) -> tuple[int, ...]:
        """The numbers of source and of target tokens."""
        return len(pair[0]), len(pair[1])

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """Two padded rectangles: source (B, S) and target (B, T + 1)."""
        arrays = (pad_rows(side, self.tokenizer.specials[PAD]) for side in zip(*pairs, strict=True))
        return tuple(Tensor(array, dtype=np.int64, device=self.device) for array in arrays)
