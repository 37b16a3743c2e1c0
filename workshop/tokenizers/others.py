"""Further kinds of tokenizers: of encoders, of pretrained weights, of what is no text, and the first byte pairs."""

from workshop.tokenizers import KINDS
from workshop.tokenizers.end_of_word import EndOfWordTokenizer
from workshop.tokenizers.huggingface import HFTokenizer
from workshop.tokenizers.labels import LabelTokenizer
from workshop.tokenizers.pixels import PixelTokenizer
from workshop.tokenizers.wordpiece import WordPieceTokenizer

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
