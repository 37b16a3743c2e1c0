"""What stands around the training loop: options, processes, the run's folder, checkpoints, estimates."""
