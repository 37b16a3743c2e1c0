"""Further kinds of tokenizers: of encoders, of pretrained weights, of what is no text, and the first byte pairs."""

from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.huggingface import HFTokenizer
from extra.tokenizers.labels import LabelTokenizer
from extra.tokenizers.pixels import PixelTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.tokenizers import KINDS

OTHERS = {
    "bpe-w": EndOfWordTokenizer,
    "wordpiece": WordPieceTokenizer,
    "hf": HFTokenizer,
    "labels": LabelTokenizer,
    "pixels": PixelTokenizer,
}


def register() -> None:
    """Make checkpoints with these tokenizers readable."""
    KINDS.update(OTHERS)
