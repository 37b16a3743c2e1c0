"""The GPT: a decoder-only Transformer that writes."""
