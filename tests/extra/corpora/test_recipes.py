"""Every corpus of the shelf has a hash, or says that its first download is trusted."""

import pytest

from extra.corpora import pairs, texts
from tests.reliability import test_supply as core


@pytest.mark.parametrize("module", [texts, pairs], ids=["texts", "pairs"])
def test_every_corpus_has_a_hash_or_says_that_its_first_download_is_trusted(module):
    core.test_every_corpus_has_a_hash_or_says_that_its_first_download_is_trusted(module)
