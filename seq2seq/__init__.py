"""The translation model: an encoder-decoder Transformer."""
