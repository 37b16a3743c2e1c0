"""Files of weights: the layouts of other programs, read and written."""
