"""Only regular files of a bearable size are read by the readers of the shelf; what is written is complete or absent."""

import os
import sys

import numpy as np
import pytest

from extra.corpora import pictures, tables
from extra.plots.figure import Picture, write, write_or_refuse
from extra.plots.training import read_rows
from extra.pretrained.read import read_json
from extra.studies.program import write_lines
from tests.training.cli.test_files import SPECIAL, assert_refused, assert_replaced


def picture(path):
    pytest.importorskip("PIL")
    pictures.read_picture(str(path), 8, 8)


READERS = {  # each with the name of the file
    "table": (lambda path: tables.read_table(str(path)), "a.csv"),
    "picture": (picture, "a.png"),
    "losses": (read_rows, "metrics.csv"),
    "settings": (read_json, "config.json"),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="FIFOs, devices and files with holes")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_or_too_large_is_refused(reader, kind, tmp_path):
    assert_refused(*READERS[reader], SPECIAL[kind], tmp_path)


def numbers(path, data):
    arrays = {"a": np.ones(3)} if path.suffix == ".npz" else {}
    write(Picture("", "", (1, 1), print, table=[[data]], arrays=arrays), path)


WRITERS = {  # each with the name of the file, and whether a user names it
    "page or image": (write_or_refuse, "a.html", True),
    "table": (numbers, "a.csv", True),
    "arrays": (numbers, "a.npz", True),
    "lines": (lambda path, data: write_lines(path, [data]), "a.txt", True),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.skipif(os.name != "posix", reason="rights, links and FIFOs")
def test_a_file_is_replaced_never_overwritten(writer, tmp_path, monkeypatch):
    assert_replaced(*WRITERS[writer], tmp_path, monkeypatch)
