"""Where the export was until 0.3.0: the old command names the new one."""

from training.cli.doorstep import moved

moved("gpt.export", "extra.pretrained.export")
