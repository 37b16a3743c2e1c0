"""The translation model: an encoder-decoder Transformer."""

import extra.mixers  # noqa: F401 (what can stand in a block besides attention enters the engine's tables)
