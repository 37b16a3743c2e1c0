"""What can mix positions besides attention, and other ways to tell attention where a key is."""

from extra.mixers import exclusive, mixers, relative, window  # noqa: F401 (which enter themselves into the engine's tables)
