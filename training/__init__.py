"""A training run: options, start, folder, checkpoints, log; below, its texts, its processes and the command line."""
