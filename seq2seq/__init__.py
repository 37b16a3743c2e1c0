"""The translation model: an encoder-decoder Transformer."""

import tinygrad_lite  # noqa: F401 (which answers for the modules that have moved)
