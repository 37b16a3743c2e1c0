"""The GPT: a decoder-only Transformer that predicts the next token."""
