"""A web server on this machine that answers for every address, for the tests of what is downloaded."""

import http.client
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = f"https://{self.headers['Host']}{self.path}"
        self.server.asked.append(url)
        data = self.server.files.get(url)
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"") + self.server.missing))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *args: object) -> None:
        pass


class Web(ThreadingHTTPServer):
    """Gives the `files`, by their addresses, notes in `asked` what it is asked for, and announces `missing` bytes more
    than it sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.missing = 0


@pytest.fixture
def web(monkeypatch) -> Iterator[Web]:
    """All https:// addresses lead to this server. The way there is urllib's own, only without TLS."""
    with Web() as server:

        def connect(host: str, **options) -> http.client.HTTPConnection:
            connection = http.client.HTTPConnection(host, timeout=options["timeout"])
            connection._create_connection = lambda address, *rest: create(server.server_address, *rest)
            return connection

        create = http.client.HTTPConnection("")._create_connection
        monkeypatch.setattr(urllib.request.HTTPSHandler, "https_open", lambda self, req: self.do_open(connect, req))
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
