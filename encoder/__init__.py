"""Where the encoders were until 0.3.0: an old command names the new one."""

from training.cli.doorstep import moved

moved("encoder", "-m extra.encoders")
