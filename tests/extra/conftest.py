"""What the tests of the shelf add to the fixtures of all."""

from extra.studies import scores
from tests import places

places.SCRIPTS.append(scores)
