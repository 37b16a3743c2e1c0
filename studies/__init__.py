"""What can be found out about a model: a small program each, pictures, and the page of `--explain`."""
