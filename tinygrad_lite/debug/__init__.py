"""Tools for debugging: gradient checks, graphs of expressions, the first NaN."""
