"""What does the decoder attend to? The weights of the cross-attention, as numbers and as a plot.

For every target token, each head of each layer has weights over the source tokens, which sum to 1. With the words of
both sentences along the axes they make a chart: dark squares show which German word corresponds to which English one,
and where the word order changes.

    found = cross_attention(model, tokenizer, "Der Mann liest.", tokens)
    found.weights[0, 2]      # (T, S): layer 0, head 2

Tokens that are parts of words or of characters are shown as they are, with · for a space.

Reference: Bahdanau, Cho, Bengio 2015 (arXiv:1409.0473), figure 3; Vaswani et al. 2017, section 3.2.3.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seq2seq.data import BOS, EOS
from seq2seq.model import Seq2Seq
from tinygrad_lite.autograd import no_grad
from tinygrad_lite.cli.console import visible
from tinygrad_lite.cli.errors import OptionError
from tinygrad_lite.nn import Module
from tinygrad_lite.tensor import Tensor
from tinygrad_lite.tokenizers.base import Tokenizer
from tinygrad_lite.training.plot import METADATA, new_figure, own_style, save
from tinygrad_lite.transformer import MultiHeadAttention

FORMATS = tuple(METADATA)  # suffixes of plots
MAX_INCHES = 100  # a larger plot takes minutes and gigabytes


@dataclass(frozen=True)
class CrossAttention:
    """Which source tokens each target token attends to.

    Attributes:
        source: the S tokens of the source sentence, as text.
        target: the T tokens of its translation, as text, the last of which is <eos>.
        weights: (layers, heads, T, S), the weights for each target token, which sum to 1 over S.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray


def cross_attention(model: Seq2Seq, tokenizer: Tokenizer, sentence: str, translation: Sequence[int]) -> CrossAttention:
    """The cross-attention of each layer and head when the model produces this translation of the sentence.

    Args:
        translation: the tokens, as in `Translation.tokens`; <eos> is added if it is missing.
    Raises: ValueError if the sentence has no token.
    """
    block_size, eos = model.config.block_size, tokenizer.specials[EOS]
    source = tokenizer.encode(sentence)[:block_size]
    if not source:
        raise ValueError("cross_attention: the sentence is empty, so there is nothing to attend to")
    written = [token for token in translation if token != eos][: block_size - 1]
    device = model.token_embedding.weight.device
    model.eval()
    with no_grad(), watching(model) as heads:
        # Token t is predicted when the decoder reads token t - 1, so the input begins with <bos>.
        target = [tokenizer.specials[BOS], *written]
        model(*(Tensor(np.array([ids]), device=device) for ids in (source, target)))
    weights = np.stack([one.weights.numpy()[0] for one in heads])
    return CrossAttention(pieces(tokenizer, source), [*pieces(tokenizer, written), EOS], weights)


class Watched(Module):
    """Wraps an attention, and records its weights."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, cache: None = None) -> Tensor:
        """The output of the attention: x (B, T, C), memory (B, S, C) -> (B, T, C)."""
        self.weights = self.attention.weights(x, memory, mask)
        return self.attention(x, memory, mask)


@contextmanager
def watching(model: Seq2Seq) -> Iterator[list[Watched]]:
    """Inside, the cross-attention of every layer records its weights."""
    watched = [Watched(block.cross) for block in model.decoder]
    try:
        for block, one in zip(model.decoder, watched, strict=True):
            block.cross = one
        yield watched
    finally:
        for block, one in zip(model.decoder, watched, strict=True):
            block.cross = one.attention


def pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> list[str]:
    """The text of each token alone, with · for each space and an escape for each control character."""
    shown = str.maketrans({" ": "·", "\n": r"\n", "\t": r"\t"})
    return [visible(tokenizer.decode([token])).translate(shown) for token in tokens]


def plot_attention(found: CrossAttention, path: Path) -> None:
    """Write a plot, .svg, .png or .pdf, with a chart for each layer (rows) and head (columns).

    Raises: UserError if matplotlib is not installed, if the plot would be too large, or if the file cannot be
        written.
    """
    layers, heads, t, s = found.weights.shape
    width, height = 1.0 + heads * (0.6 + 0.17 * s), 0.6 + layers * (0.5 + 0.17 * t)  # inches
    if max(width, height) > MAX_INCHES:
        raise OptionError(
            f"--attention {path}: with {s} tokens in the sentence and {t} in its translation the plot would measure "
            f"{width:.0f} by {height:.0f} inches, more than {MAX_INCHES}: use a shorter sentence"
        )
    with own_style():
        figure = new_figure(width, height)
        charts = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
        for (layer, head), axes in np.ndenumerate(charts):
            axes.imshow(found.weights[layer, head], cmap="Greys", vmin=0, vmax=1, aspect="equal")
            axes.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
        # All charts share the axes; labels are shown at the outer edges only.
        charts[0, 0].set_xticks(range(s), found.source)
        charts[0, 0].set_yticks(range(t), found.target)
        for axes in charts.flat:
            for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
                label.set_parse_math(False)  # a dollar sign does not begin a formula
            axes.tick_params(length=0, labelsize=7)
            axes.tick_params(axis="x", labelrotation=90)
        with warnings.catch_warnings():  # an SVG can show letters that matplotlib's font lacks
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            save(figure, path)
