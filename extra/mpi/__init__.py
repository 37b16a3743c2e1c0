"""Training on several machines, by MPI."""
