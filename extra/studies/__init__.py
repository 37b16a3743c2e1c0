"""What can be found out about a model: small programs, pictures, and the page of `--explain`."""

from training.cli.doorstep import check_python

check_python("a study")
