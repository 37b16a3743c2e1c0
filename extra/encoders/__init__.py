"""Encoders, which read a whole text or picture at once: BERT for words, the Vision Transformer for pictures."""
