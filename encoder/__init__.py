"""Encoders, which read a whole text or picture at once: BERT for words, the Vision Transformer for pictures."""

import tinygrad_lite  # noqa: F401 (which answers for the modules that have moved)
