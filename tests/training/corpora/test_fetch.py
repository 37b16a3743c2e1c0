"""Fetching and caching without a network: packages made here, and stand-ins for apt-get and for https."""

import http.client
import io
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from email.message import Message
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, patch

import pytest

from tinygrad_lite.errors import CorpusError
from training.cli.console import run_apart
from training.corpora import fetch

MEMBER = "usr/share/poems/poem.txt"


def make_tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def started_by(run):
    """Within this context, `run` stands in for subprocess.run."""
    return patch.object(fetch, "run_apart", partial(run_apart, run=run))


def run_dpkg_deb(command, **options):
    """Stands in for dpkg-deb: the packages of these tests are the archives that it would make of them."""
    assert command[:2] == ["dpkg-deb", "--fsys-tarfile"]
    options["stdout"].write(Path(command[2]).read_bytes())
    return subprocess.CompletedProcess(command, 0, None, b"")


class FakeApt:
    """Stands in for subprocess.run: notes the calls, and leaves packages (name -> content) where apt-get would."""

    def __init__(self, packages=None, unpack=run_dpkg_deb, **results):
        self.packages, self.unpack, self.results, self.calls = packages or {}, unpack, results, []

    def __call__(self, command, **options):
        if command[0] == "dpkg-deb":
            return self.unpack(command, **options)
        folder, action = Path(options["cwd"]), "update" if "update" in command else "download"
        self.calls.append((command, options))
        self.settings = (folder / "apt.conf").read_text(encoding="utf-8")
        if action == "download":
            for name, content in self.packages.items():
                (folder / f"{name}_1%3a2.0-1_all.deb").write_bytes(content)
        code, stderr = self.results.get(action, (0, b""))
        return subprocess.CompletedProcess(command, code, b"", stderr)


@pytest.fixture(autouse=True)
def with_apt(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")


def test_files_come_out_of_downloaded_packages_and_the_folder_is_private_and_goes():
    tar = make_tar({"./usr/": b"", f"./{MEMBER}": "Übermut".encode(), "./last": b"x"})
    packages = {"poems": tar, "more": make_tar({"a/b": b"c"})}
    run = FakeApt(packages, update=(100, b"E: some other source is broken\n"))
    with started_by(run):
        assert fetch.debian_files({"poems": MEMBER, "more": "a/b"}) == {"poems": "Übermut", "more": "c"}
    (update, options), (download, _) = run.calls
    folder = Path(options["cwd"])
    both = ["apt-get", "-q", "-c", str(folder / "apt.conf")]
    assert (update, download) == ([*both, "update"], [*both, "download", "more", "poems"])
    assert f'Dir::State::Lists "{folder / "lists"}";\nDir::Cache "{folder / "cache"}";\n' in run.settings
    assert (options["stdin"], options["env"]["LC_ALL"]) == (subprocess.DEVNULL, "C")
    assert (options["timeout"] > 0, "shell" in options, folder.exists()) == (True, False, False)


UNKNOWN = Mock(return_value=subprocess.CompletedProcess([], 2, b"", b"unknown compression\n"))
SLOW = Mock(side_effect=subprocess.TimeoutExpired("dpkg-deb", 60))
OTHER_NAMES = ["/" + MEMBER, f"../{MEMBER}", f"x/{MEMBER}", MEMBER + ".bak"]
DAMAGED = [b"", b"PK\x03\x04 a zip", make_tar({MEMBER: b"poem" * 999})[:700]]
FAILURES = [
    (FakeApt(download=(100, b"W: hm\nE: Unable to locate package poems\n")), "failed: Unable to locate package"),
    (FakeApt(update=(0, b"W: Failed to fetch x  no route\nW: no\n"), download=(100, b"E: no\n")), "fetch x  no route"),
    (FakeApt(), "left no file of the package poems"),
    (FakeApt({"poems": make_tar(dict.fromkeys(OTHER_NAMES, b"evil"))}), "has no file usr/share/poems/poem.txt"),
    (FakeApt({"poems": make_tar({MEMBER: b"sch\xf6n"})}), r"not UTF-8 \(byte 0xf6 at byte offset 3\)"),
    *((FakeApt({"poems": content}), "cannot be read as a Debian package") for content in DAMAGED),
    (FakeApt({"poems": b""}, unpack=UNKNOWN), "cannot unpack .* unknown compression$"),
    (FakeApt({"poems": b""}, unpack=SLOW), r"`dpkg-deb poems_.*\.deb` did not end within 60 s"),
    (Mock(side_effect=subprocess.TimeoutExpired("apt-get", 1)), "`apt-get update` did not end within"),
    (Mock(side_effect=PermissionError("no")), "`apt-get update` cannot be started: no"),
]


@pytest.mark.parametrize(("run", "reason"), FAILURES)
def test_a_package_that_cannot_be_had_or_read_says_why(run, reason):
    with started_by(run), pytest.raises(CorpusError, match=reason):
        fetch.debian_files({"poems": MEMBER})


def test_a_system_without_apt_get_is_told_so(monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda name: None)
    with pytest.raises(CorpusError, match="no apt-get"):
        fetch.debian_files({"poems": MEMBER})


# ------------------------------------------------------------------------------------------------- https


def answer(data: bytes):
    def open_url(request, timeout):
        assert timeout > 0
        assert request.full_url == "https://example.org/poem.txt"
        return io.BytesIO(data)

    return open_url


def cut_short(request, timeout):
    """An answer of three bytes whose header says nine."""
    answered = io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal")
    response = http.client.HTTPResponse(SimpleNamespace(makefile=lambda mode: answered))
    response.begin()
    return response


URL = "https://example.org/poem.txt"


@pytest.mark.parametrize("target", ["http://example.org/b", "file:///etc/hostname"])
def test_addresses_and_redirects_are_https_only(target):
    with pytest.raises(CorpusError, match="is not an https:// address"):
        fetch.https_text(target, Mock(side_effect=AssertionError("not to be opened")))
    request, handler = urllib.request.Request(URL), fetch.OnlyHttps()
    with pytest.raises(CorpusError, match=r"redirects to .* not https"):
        handler.redirect_request(request, None, 302, "Found", Message(), target)
    onward = handler.redirect_request(request, None, 302, "Found", Message(), "https://example.org/b")
    assert onward.full_url == "https://example.org/b"


HTTPS_FAILURES = [
    (Mock(side_effect=urllib.error.HTTPError(URL, 403, "Forbidden", Message(), None)), "answered 403 Forbidden"),
    (Mock(side_effect=urllib.error.URLError("no route to host")), "cannot be reached: no route to host"),
    (Mock(side_effect=http.client.IncompleteRead(b"half")), "failed: IncompleteRead"),
    (cut_short, "failed: it lacks 6 bytes"),
    *((answer(b"\xff\xfe"), "is not UTF-8"), (answer(b"1234"), "has more than 3 bytes")),
]


@pytest.mark.parametrize(("open_url", "reason"), HTTPS_FAILURES)
def test_a_page_that_cannot_be_had_says_why(monkeypatch, open_url, reason):
    monkeypatch.setattr(fetch, "MAX_BYTES", 3)
    assert fetch.https_text(URL, answer(b"1\r\n")) == "1\r\n"
    with pytest.raises(CorpusError, match=f"{URL} {reason}"):
        fetch.https_text(URL, open_url)


# ------------------------------------------------------------------------------------------------- cache


FACTS = {"source": "somewhere", "licence": "free"}


def test_a_stored_text_is_recalled_with_its_facts(cache):
    assert fetch.recall("poem") is None
    fetch.store("poem", "schön\n\nund gut\n", FACTS)
    text, facts = fetch.recall("poem")
    assert (text, facts) == ("schön\n\nund gut\n", {**FACTS, "sha256": fetch.sha256(text)})
    assert {path.name for path in cache.iterdir()} == {"poem.json", "poem.txt"}
    assert (cache / "poem.txt").read_bytes() == text.encode("utf-8")


DAMAGES = [("poem.txt", content) for content in (b"sch\xc3\xb6", b"sch\xc3")]
DAMAGES += [("poem.json", content) for content in (b"", b"[1]", b"[" * 100_000, b'{"sha256": "0"}')]


@pytest.mark.parametrize(("file", "content"), DAMAGES)
def test_a_damaged_cache_is_noticed(cache, file, content):
    fetch.store("poem", "schön", FACTS)
    (cache / file).write_bytes(content)
    with pytest.raises(CorpusError, match=r"poem\.txt is damaged"):
        fetch.recall("poem")


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", "one")
    monkeypatch.setenv("XDG_CACHE_HOME", "two")
    assert fetch.cache_folder() == Path("one")
    monkeypatch.setenv("TINYGRAD_LITE_CACHE", "")
    assert fetch.cache_folder() == Path("two", "tinygrad_lite")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert fetch.cache_folder() == Path(os.path.expanduser("~"), ".cache", "tinygrad_lite")
