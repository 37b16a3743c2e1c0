"""The GPT: a decoder-only Transformer that predicts the next token."""

import extra.mixers  # noqa: F401 (what can stand in a block besides attention enters the engine's tables)
