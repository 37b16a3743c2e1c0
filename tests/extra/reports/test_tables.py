"""A table of labelled texts is the same in every normal form of Unicode."""

import unicodedata

from extra.corpora import tables
from tests.reports.test_texts import FORMS


def test_a_table_is_read_in_one_form(tmp_path):
    found, text = [], "text\tlabel\n" + "".join(f"süß{n}\tgrün{n % 2}\n" for n in range(30))
    for form in FORMS:
        path = tmp_path / f"{form}.tsv"
        path.write_text(unicodedata.normalize(form, text), encoding="utf-8")
        table = tables.read_table(str(path), lambda line: None)
        found.append((table.sha256, table.labels))
    assert found == [found[0]] * len(FORMS)
