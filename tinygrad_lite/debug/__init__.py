"""Tools for debugging: gradient checks, graphs of expressions, the first NaN, time and memory of operations."""
