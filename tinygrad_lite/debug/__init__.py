"""To look inside: gradient checks, graphs of expressions, the first NaN, where time and memory go."""
