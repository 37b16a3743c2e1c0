"""Text into tokens and back, and tokens from probabilities: tokenizers and decoding."""
