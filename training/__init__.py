"""A training run: options, the run's folder, checkpoints, the log, estimates."""
