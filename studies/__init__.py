"""What can be found out about a model: small programs, pictures, and the page of `--explain`."""
