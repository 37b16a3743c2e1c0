"""Generation token by token, as fast as the machine allows: by NumPy on a CPU, by kernels on a GPU."""
