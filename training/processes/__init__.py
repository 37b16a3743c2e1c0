"""Several processes that train one model: on this machine, or on several by MPI."""
