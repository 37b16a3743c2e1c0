"""The corpora of the shelf are registered, and what stands in for the web and the cache is that of the core's tests."""

import extra.corpora.pairs
import extra.corpora.texts  # noqa: F401
from tests.training.corpora.conftest import cache, offline, web, write  # noqa: F401 (fixtures)
