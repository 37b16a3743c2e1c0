"""Talking with a model: templates, conversations, and small models that were trained for it."""
