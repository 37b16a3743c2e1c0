"""Where the studies were until 0.3.0: an old command names the new one."""

import extra.studies  # noqa: F401 (which knows those that are scripts of the course now)
from training.cli.doorstep import moved

moved("studies", "-m extra.studies")
