"""Encoders of other programs: the names of their settings and weights, and ours."""
