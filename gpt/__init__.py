"""The GPT: a decoder-only Transformer that writes."""

import tinygrad_lite  # noqa: F401 (which answers for the modules that have moved)
