"""Learning from points for the model's own answers, and a calculator that it may use."""
