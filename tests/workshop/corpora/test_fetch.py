"""Fetching and caching without a network: packages made here, and stand-ins for apt-get and for https."""

import gzip
import http.client
import io
import lzma
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path

import pytest

from tinygrad_lite.errors import CorpusError
from workshop.corpora import fetch

MEMBER = "usr/share/poems/poem.txt"


def make_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def make_ar(parts: dict[str, bytes]) -> bytes:
    archive = b"!<arch>\n"
    for name, content in parts.items():
        archive += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode("ascii")
        archive += content + b"\n" * (len(content) % 2)
    return archive


def make_deb(files: dict[str, bytes], suffix: str = ".xz") -> bytes:
    pack = {".xz": lzma.compress, ".gz": gzip.compress, "": bytes, ".zst": lambda data: b"(zst)" + data}[suffix]
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar{suffix}": pack(make_tar(files))}
    return make_ar(parts)


@pytest.fixture
def deb(tmp_path):
    def write(content: bytes) -> Path:
        path = tmp_path / "poems_1.0_all.deb"
        path.write_bytes(content)
        return path

    return write


def refuse_to_run(*args, **kwargs):
    raise AssertionError("no program is needed here")


@pytest.mark.parametrize("suffix", [".xz", ".gz", ""])
def test_one_file_is_read_out_of_a_package(deb, suffix):
    path = deb(make_deb({"./usr/": b"", f"./{MEMBER}": "schöne Welt".encode(), "./last": b"x"}, suffix))
    assert fetch.read_deb(path, MEMBER, refuse_to_run) == {MEMBER: "schöne Welt".encode()}
    assert os.listdir(path.parent) == [path.name]


def test_zstandard_goes_through_dpkg_deb(deb):
    def run(command, **kwargs):
        assert command[:2] == ["dpkg-deb", "--fsys-tarfile"]
        kwargs["stdout"].write(make_tar({MEMBER: b"poem"}))
        return subprocess.CompletedProcess(command, 0, None, b"")

    assert fetch.read_deb(deb(make_deb({MEMBER: b"?"}, ".zst")), MEMBER, run) == {MEMBER: b"poem"}


def test_zstandard_that_dpkg_deb_cannot_unpack_is_an_error(deb):
    def run(command, **kwargs):
        return subprocess.CompletedProcess(command, 2, b"", b"unknown compression\n")

    with pytest.raises(CorpusError, match=r"cannot unpack .* unknown compression$"):
        fetch.read_deb(deb(make_deb({}, ".zst")), MEMBER, run)


def test_only_the_exact_regular_file_is_read(deb):
    names = ["/" + MEMBER, f"../{MEMBER}", f"./usr/../{MEMBER}", f"x/{MEMBER}", MEMBER + ".bak"]
    with pytest.raises(CorpusError, match=r"has no file usr/share/poems/poem\.txt"):
        fetch.read_deb(deb(make_deb(dict.fromkeys(names, b"evil"))), MEMBER)


def test_a_file_above_the_bound_is_refused(deb, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_BYTES", 10)
    with pytest.raises(CorpusError, match="has 11 bytes, above 10"):
        fetch.read_deb(deb(make_deb({MEMBER: b"x" * 11})), MEMBER)


def test_several_files_are_read_up_to_a_bound_for_all_of_them(deb, monkeypatch):
    files = {"./a/de/1.html": b"1", "./a/de/b/2.html": b"22", "./a/de/3.htm": b"3", "./a/en/4.html": b"4"}
    path = deb(make_deb(files, ""))
    assert fetch.read_deb(path, "a/de/*.html") == {"a/de/1.html": b"1", "a/de/b/2.html": b"22"}
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 2)  # does not bound an archive that is not compressed
    with pytest.raises(CorpusError, match="its files have more than 2 bytes"):
        fetch.read_deb(path, "a/de/*.html")


@pytest.mark.parametrize("keep", [0, 5, 40, 100, 200, 300])
@pytest.mark.parametrize("suffix", [".xz", ".gz", ""])
def test_a_package_cut_short_is_an_error(deb, suffix, keep):
    with pytest.raises(CorpusError, match="cannot be read as a Debian package"):
        fetch.read_deb(deb(make_deb({MEMBER: os.urandom(2000)}, suffix)[:keep]), MEMBER)


@pytest.mark.parametrize(
    "archive",
    [
        make_ar({"data.tar.xz": lzma.compress(make_tar({MEMBER: b"poem" * 999}))[:80]}),
        make_ar({"data.tar.gz": gzip.compress(make_tar({MEMBER: b"poem" * 999}))[:80]}),
        make_ar({"data.tar": make_tar({MEMBER: b"poem" * 999})[:700]}),
        make_ar({"data.tar.xz": b"not xz"}),
        make_ar({"data.tar.odd": b"?"}),
        make_ar({"control.tar": b"?"}),
        make_ar({"data.tar": b"x" * 600}).replace(b"600 ", b"-60 "),
        make_ar({"data.tar": b"x" * 600}).replace(b"600 ", b"6oo "),
        b"PK\x03\x04 a zip",
    ],
)
def test_a_damaged_package_is_an_error(deb, archive):
    with pytest.raises(CorpusError, match="cannot be read as a Debian package"):
        fetch.read_deb(deb(archive), MEMBER)


# ----------------------------------------------------------------------------------------------- apt-get


class FakeApt:
    """Stands in for subprocess.run: notes the calls, and leaves packages where apt-get would."""

    def __init__(self, packages=(), update=(0, b""), download=(0, b"")):
        self.packages, self.results, self.calls = packages, {"update": update, "download": download}, []

    def __call__(self, command, **options):
        self.calls.append((command, options))
        action = "update" if "update" in command else "download"
        code, stderr = self.results[action]
        if action == "download" and code == 0:
            for name, content in self.packages:
                (Path(options["cwd"]) / f"{name}_1%3a2.0-1_all.deb").write_bytes(content)
        return subprocess.CompletedProcess(command, code, b"", stderr)


@pytest.fixture
def with_apt(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("with_apt")
def test_files_come_out_of_downloaded_packages_and_the_folder_is_private_and_goes():
    run = FakeApt([("poems", make_deb({MEMBER: "Übermut".encode()})), ("more", make_deb({"a/b": b"c"}))])
    assert fetch.debian_files({"poems": MEMBER, "more": "a/b"}, run) == {"poems": "Übermut", "more": "c"}
    (update, options), (download, _) = run.calls
    folder = Path(options["cwd"])
    assert update[0] == "apt-get"
    assert update[-1] == "update"
    assert download[-3:] == ["download", "more", "poems"]
    assert f"Dir::State::Lists={folder / 'lists'}" in update
    assert f"Dir::Cache={folder / 'cache'}" in download
    assert options["stdin"] == subprocess.DEVNULL
    assert options["env"]["LC_ALL"] == "C"
    assert options["timeout"] > 0
    assert "shell" not in options
    assert not folder.exists()


@pytest.mark.usefixtures("with_apt")
def test_folders_come_out_of_downloaded_packages():
    run = FakeApt(
        [("poems", make_deb({"p/a": "ü".encode(), "p/b": b"", "q": b"?"})), ("more", make_deb({"c/d": b"d"}))]
    )
    found = fetch.debian_folders({"poems": "p/*", "more": "*"}, run)
    assert found == {"poems": {"p/a": "ü", "p/b": ""}, "more": {"c/d": "d"}}


@pytest.mark.usefixtures("with_apt")
@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (
            FakeApt(download=(100, b"W: hm\nE: Unable to locate package poems\n")),
            "failed: Unable to locate package poems",
        ),
        (
            FakeApt(update=(0, b"W: Failed to fetch x  no route\nW: ignored\n"), download=(100, b"E: no\n")),
            "fetch x  no route",
        ),
        (FakeApt(download=(100, b"")), "it gave no reason"),
        (FakeApt(), "left no file of the package poems"),
        (FakeApt([("poems", make_deb({"other": b""}))]), "has no file usr/share/poems/poem.txt"),
        (FakeApt([("poems", make_deb({MEMBER: b"sch\xf6n"}))]), r"not UTF-8 \(byte 0xf6 at byte offset 3\)"),
    ],
)
def test_a_failure_of_apt_get_says_why(run, reason):
    with pytest.raises(CorpusError, match=reason):
        fetch.debian_files({"poems": MEMBER}, run)


@pytest.mark.usefixtures("with_apt")
def test_a_failed_update_of_some_source_does_not_keep_the_download_from_trying():
    run = FakeApt([("poems", make_deb({MEMBER: b"p"}))], update=(100, b"E: some other source is broken\n"))
    assert fetch.debian_files({"poems": MEMBER}, run) == {"poems": "p"}


@pytest.mark.usefixtures("with_apt")
def test_an_apt_get_that_hangs_or_does_not_start_is_an_error():
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    def missing(command, **options):
        raise PermissionError("no")

    with pytest.raises(CorpusError, match="`apt-get update` did not end within"):
        fetch.debian_files({"poems": MEMBER}, hang)
    with pytest.raises(CorpusError, match="`apt-get update` cannot be started: no"):
        fetch.debian_files({"poems": MEMBER}, missing)


def test_a_system_without_apt_get_is_told_so(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(CorpusError, match="no apt-get"):
        fetch.debian_files({"poems": MEMBER}, refuse_to_run)


# ------------------------------------------------------------------------------------------------- https


def answer(data: bytes):
    def open_url(request, timeout):
        assert timeout > 0
        assert request.full_url == "https://example.org/poem.txt"
        return io.BytesIO(data)

    return open_url


def failure(error: Exception):
    def open_url(request, timeout):
        raise error

    return open_url


URL = "https://example.org/poem.txt"


def test_a_page_of_text_is_read():
    assert fetch.https_text(URL, answer("schön\r\n".encode())) == "schön\r\n"


@pytest.mark.parametrize(
    "url", ["http://example.org/poem.txt", "file:///etc/hostname", "ftp://example.org/x", "poem.txt"]
)
def test_other_schemes_than_https_are_refused(url):
    with pytest.raises(CorpusError, match="is not an https:// address"):
        fetch.https_text(url, failure(AssertionError("not to be opened")))


@pytest.mark.parametrize("target", ["http://example.org/b", "file:///etc/hostname", "//example.org/b"])
def test_redirects_lead_to_https_only(target):
    request, handler = urllib.request.Request(URL), fetch.OnlyHttps()
    with pytest.raises(CorpusError, match=r"redirects to .* not https"):
        handler.redirect_request(request, None, 302, "Found", Message(), target)
    onward = handler.redirect_request(request, None, 302, "Found", Message(), "https://example.org/b")
    assert onward.full_url == "https://example.org/b"


def test_a_redirect_to_a_malformed_address_is_refused():
    headers = Message()
    headers["location"] = "https://[::1"

    def redirected(request, timeout):
        return fetch.OnlyHttps().http_error_302(request, None, 302, "Found", headers)

    with pytest.raises(CorpusError, match=f"the download of {URL} failed: .*IPv6"):
        fetch.https_bytes(URL, redirected)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (urllib.error.HTTPError(URL, 403, "Forbidden", Message(), io.BytesIO()), "answered 403 Forbidden"),
        (urllib.error.URLError("no route to host"), "cannot be reached: no route to host"),
        (TimeoutError("timed out"), "failed: .*timed out"),
        (http.client.IncompleteRead(b"half"), "failed: IncompleteRead"),
    ],
)
def test_a_page_that_cannot_be_had_says_why(error, reason):
    with pytest.raises(CorpusError, match=f"{URL} {reason}"):
        fetch.https_text(URL, failure(error))


def test_a_page_above_the_bound_or_not_in_utf8_is_refused(monkeypatch):
    with pytest.raises(CorpusError, match="not UTF-8"):
        fetch.https_text(URL, answer(b"\xff\xfe"))
    monkeypatch.setattr(fetch, "MAX_BYTES", 3)
    assert fetch.https_text(URL, answer(b"123")) == "123"
    with pytest.raises(CorpusError, match="more than 3 bytes"):
        fetch.https_text(URL, answer(b"1234"))


# ------------------------------------------------------------------------------------------------- cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


FACTS = {"source": "somewhere", "licence": "free"}


def test_a_stored_text_is_recalled_with_its_facts(cache):
    assert fetch.recall("poem") is None
    fetch.store("poem", "schön\n\nund gut\n", FACTS)
    text, facts = fetch.recall("poem")
    assert text == "schön\n\nund gut\n"
    assert facts == {**FACTS, "sha256": fetch.sha256(text)}
    assert sorted(os.listdir(cache)) == ["poem.json", "poem.txt"]
    assert (cache / "poem.txt").read_bytes() == text.encode("utf-8")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("poem.txt", b"sch\xc3\xb6"),
        ("poem.txt", b"sch\xc3"),
        ("poem.txt", None),
        ("poem.json", None),
        ("poem.json", b""),
        ("poem.json", b"[1]"),
        ("poem.json", b"[" * 100_000),
        ("poem.json", b'{"sha256": ' + b"9" * 10_000 + b"}"),
        ("poem.json", b'{"sha256": "0"}'),
        ("poem.json", b'{"sha256": "0", "source": "a", "licence": "b"}'),
        ("poem.json", b'{"source": 1, "licence": null}'),
    ],
)
def test_a_damaged_cache_is_noticed(cache, file, content):
    fetch.store("poem", "schön", FACTS)
    if content is None:
        (cache / file).unlink()
    else:
        (cache / file).write_bytes(content)
    with pytest.raises(CorpusError, match=r"poem\.txt is damaged"):
        fetch.recall("poem")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "poem.txt"
    fetch.write_atomically(path, b"alt")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(fetch.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        fetch.write_atomically(path, b"neu")
    assert path.read_text(encoding="utf-8") == "alt"
    assert os.listdir(tmp_path) == ["poem.txt"]


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", "one")
    monkeypatch.setenv("XDG_CACHE_HOME", "two")
    assert fetch.cache_folder() == Path("one")
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", "")
    assert fetch.cache_folder() == Path("two", "tinygrad_lite")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetch.cache_folder() == Path(os.path.expanduser("~"), ".cache", "tinygrad_lite")
