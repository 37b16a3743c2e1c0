"""Masked diffusion: a model that writes a text in any order, by uncovering hidden tokens."""
