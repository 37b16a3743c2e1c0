"""The fixtures of the core's reliability tests serve these, too."""

from tests.reliability.conftest import models, report, tried_many  # noqa: F401
