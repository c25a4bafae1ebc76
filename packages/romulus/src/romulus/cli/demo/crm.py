"""The demo's provider: a CRM over HTTP that counts what it applies, and can lose an answer after it has applied the write."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

SLOW_S = 60.0  # how long an answer is kept back that is to be lost


class Crm:
    """A provider on a port of this machine, while entered."""

    def __init__(self) -> None:
        self.applied: list[tuple[str, str]] = []  # (operation ID, customer), in the order of the writes
        self.lose_answers = 0  # of the next writes
        self.over = threading.Event()
        handler = type("Handler", (_Handler,), {"crm": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    crm: Crm

    def do_POST(self) -> None:
        """Apply a write, then answer or do not."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.crm.applied.append((body["operation"], body["customer"]))
        if self.crm.lose_answers:
            self.crm.lose_answers -= 1
            self.crm.over.wait(SLOW_S)
            self.close_connection = True
        else:
            self._answer(200, {"customer": body["customer"]})

    def do_GET(self) -> None:
        """Say whether an operation was applied."""
        found = [customer for operation, customer in self.crm.applied if self.path == f"/{operation}"]
        self._answer(200, {"customer": found[0]}) if found else self._answer(404, {})

    def _answer(self, status: int, body: dict[str, str]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing."""
