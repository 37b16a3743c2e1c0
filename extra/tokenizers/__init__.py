"""Further kinds of tokenizers: of encoders, of pretrained weights, of what is no text, and the first byte pairs."""

from extra.tokenizers.end_of_word import EndOfWordTokenizer
from extra.tokenizers.huggingface import HFTokenizer
from extra.tokenizers.labels import LabelTokenizer
from extra.tokenizers.pixels import PixelTokenizer
from extra.tokenizers.wordpiece import WordPieceTokenizer
from text.tokenizers import KINDS

CLASSES = (EndOfWordTokenizer, WordPieceTokenizer, HFTokenizer, LabelTokenizer, PixelTokenizer)
KINDS |= {tokenizer.kind: tokenizer for tokenizer in CLASSES}  # so that checkpoints with them are readable
