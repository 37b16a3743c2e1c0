"""What can mix positions besides attention, and other ways to tell attention where a key is."""

from extra.mixers import mixers, relative, window  # which enter themselves into the engine's tables

__all__ = ["mixers", "relative", "window"]
