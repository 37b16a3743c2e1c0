"""Reported of other programs: ids of large vocabularies. Docstrings name the public threads."""

import numpy as np
import pytest

from extra.gpt.data import MixedTask
from extra.gpt.options import GPTOptions
from tests.reports.test_texts import Large


@pytest.mark.parametrize("size", [65_536, 65_537, 151_936])
def test_ids_above_65535_are_kept_from_the_text_to_the_batch(size, workplace):
    """huggingface/transformers#2825: they do not wrap around in the array that holds them."""
    tokenizer = Large([b"a"] * size, [])
    options = GPTOptions.of(text=["text.txt"], block_size=8, replay="text.txt", separator="<to>")
    data = MixedTask(options, tokenizer).data
    for part in (data.train, data.held_out, data.replay, *data.batch(3, 5), *next(data.validation_batches(4, 0))):
        ids = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
        assert {*np.unique(ids)} <= {size - 1, size - 2, size - 3}
