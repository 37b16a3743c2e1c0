"""Only regular files of a bearable size are read, by every reader; what is written is complete or absent."""

import errno
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from tinygrad_lite.errors import UserError
from training.checkpoint import save_file
from training.cli import prompt
from training.cli.files import read_file, text_of
from training.corpora import divided_pairs, fetch, texts
from training.corpora.pairs import from_table
from training.folder import RunFolder

READERS = {  # each with the name of the file
    "text": (lambda path: texts.load_files([str(path)]), "a.txt"),
    "pairs": (divided_pairs.read_table, "a.tsv"),
    "prompt": (lambda path: prompt.read_prompt(f"FILE:{path}"), "a"),
}
SPECIAL = {"FIFO": os.mkfifo if hasattr(os, "mkfifo") else None, "folder": os.mkdir}
SPECIAL |= {"device": lambda path: os.symlink("/dev/zero", path)}
SPECIAL |= {"huge file": lambda path: (Path(path).touch(), os.truncate(path, 2**40))}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="FIFOs, devices and files with holes")
@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_or_too_large_is_refused(reader, kind, tmp_path):
    assert_refused(*READERS[reader], SPECIAL[kind], tmp_path)


def assert_refused(read, name, make, tmp_path):
    """What is made instead of a file of this name is refused by a reader."""
    make(tmp_path / name)
    with pytest.raises(UserError, match=r"not a regular file|is a folder|more than [\d,]+ bytes"):
        read(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
@pytest.mark.parametrize("name", ["lock", "metrics.csv", "samples.txt"])
def test_a_run_waits_for_no_fifo_in_its_folder(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match=f"{name} is not a regular file: remove it"), RunFolder(tmp_path).locked():
        pytest.fail("the folder of a run is used")


ODD = ["a\u2028b\x0cc\x85d", '"quoted" e', 'f"']  # which other programs may count as ends of lines, or as quotes


LINES = {  # doors through which files of lines come in: the lines, and what the file has for each
    "a table of pairs": (lambda path: [source for source, _ in divided_pairs.read_table(path)], "{}\tx"),
    "aligned files": (lambda path: [source for source, _ in divided_pairs.read_two(path, path)], "{}"),
    "a prompt": (lambda path: prompt.prompt_lines(prompt.read_prompt(f"FILE:{path}")), "{}"),
    "a cached corpus": (lambda path: [de for de, _ in from_table(path.read_bytes().decode()).pairs], "pairs\t{}\tx"),
}


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("door", LINES)
def test_two_characters_end_a_line_and_no_others(door, end, tmp_path):
    assert_two_characters_end_a_line(*LINES[door], end, tmp_path)


def assert_two_characters_end_a_line(read, form, end, tmp_path):
    """A file with this end after each line is read as the lines in ODD, whose form it has."""
    (tmp_path / "lines").write_bytes("".join(form.format(line) + end for line in ODD).encode())
    assert [" ".join(line.split()) for line in read(tmp_path / "lines")] == [" ".join(line.split()) for line in ODD]


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes("ä\r\nb\rc\n".encode())
    assert (read_file(tmp_path / "a", 8), text_of(tmp_path / "a")) == ("ä\r\nb\rc\n".encode(), "ä\nb\nc\n")
    with pytest.raises(OSError, match="it has more than 7 bytes: use a smaller file"):
        read_file(tmp_path / "a", 7)
    with pytest.raises(OSError, match=r"its name cannot be used: .*null"):
        read_file("a\0b")


def stored(path, data):
    """Store a text in the cache: path is that of its .txt."""
    os.environ["TINYGRAD_LITE_CACHE"] = str(path.parent)
    fetch.store(path.stem, data, {})


WRITERS = {  # each with the name of the file, and whether a user names it
    "cache": (stored, "a.txt", False),
    "checkpoint": (lambda path, data: save_file(path, data.encode()), "a.safetensors", False),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.skipif(os.name != "posix", reason="rights, links and FIFOs")
def test_a_file_is_replaced_never_overwritten(writer, tmp_path, monkeypatch):
    assert_replaced(*WRITERS[writer], tmp_path, monkeypatch)


def assert_replaced(write_it, name, is_named, tmp_path, monkeypatch):
    """A write that fails leaves the old file and nothing else; a new file has the rights that every new file gets."""
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path))
    path, before = tmp_path / name, os.umask(0o027)
    try:
        write_it(path, "new")
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {"0o640"}
    whole, names = path.read_bytes(), sorted(os.listdir(tmp_path))
    path.write_bytes(b"precious")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        with pytest.raises((UserError, OSError), match="No space left on device"):
            write_it(path, "new")
    assert (path.read_bytes(), sorted(os.listdir(tmp_path))) == (b"precious", names)
    path.unlink()
    (tmp_path / "elsewhere").mkdir()
    path.symlink_to(tmp_path / "elsewhere" / "there")
    write_it(path, "new")
    assert path.read_bytes() == whole
    assert path.is_symlink() == is_named  # a link in a cache or a run could lead anywhere
    if is_named:
        path.unlink()
        path.symlink_to("/dev/null")
        write_it(path, "new")
        assert Path("/dev/null").is_char_device()
