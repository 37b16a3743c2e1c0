"""Tokenizers of other models, and of what is no text."""
