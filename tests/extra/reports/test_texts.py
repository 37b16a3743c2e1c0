"""Reported of other programs: ids of large vocabularies. Docstrings name the public threads."""

import unicodedata

import numpy as np
import pytest

from extra.corpora import tables
from extra.gpt.data import MixedTask
from extra.gpt.options import GPTOptions
from tests.reports.test_texts import FORMS, Large


@pytest.mark.parametrize("size", [65_536, 65_537, 151_936])
def test_ids_above_65535_are_kept_from_the_text_to_the_batch(size, workplace):
    """huggingface/transformers#2825: they do not wrap around in the array that holds them."""
    tokenizer = Large([b"a"] * size, [])
    options = GPTOptions.of(text=["text.txt"], block_size=8, replay="text.txt", separator="<to>")
    data = MixedTask(options, tokenizer).data
    for part in (data.train, data.held_out, data.replay, *data.batch(3, 5), *next(data.validation_batches(4, 0))):
        ids = np.asarray(part.numpy() if hasattr(part, "numpy") else part)
        assert {*np.unique(ids)} <= {size - 1, size - 2, size - 3}


def test_a_table_is_read_in_one_form(tmp_path):
    found, text = [], "text\tlabel\n" + "".join(f"süß{n}\tgrün{n % 2}\n" for n in range(30))
    for form in FORMS:
        path = tmp_path / f"{form}.tsv"
        path.write_text(unicodedata.normalize(form, text), encoding="utf-8")
        table = tables.read_table(str(path), lambda line: None)
        found.append((table.sha256, table.labels))
    assert found == [found[0]] * len(FORMS)
