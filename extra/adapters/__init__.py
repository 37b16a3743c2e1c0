"""Adapters: what a run learned on top of weights that do not change."""
