"""The provider: a CRM over HTTP with its own SQLite, which misbehaves in every way that providers do.

POST /plans        {"customer", "plan"}, Idempotency-Key  →  201, or 200 where the key is known, 422; a "reference" in the body, and no
                   key: every request is applied, and found under the reference
GET  /plans/{key}  →  200, or 404 while nothing (that shows) was applied under the key, 503
GET  /effects      →  how often each key was applied
POST /behaviour    changes `Behaviour`, field by field
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Behaviour:
    """How it treats the requests to come; a count goes down with each request that it was used on."""

    drop_answers: int = 0  # apply the write, then close the connection without an answer
    drop_requests: int = 0  # close the connection without doing anything
    delay_s: float = 0.0  # before a write is applied
    answer_after_s: float = 0.0  # after it was applied
    answer_twice: int = 0  # send the same answer a second time
    apply_later_s: float = 0.0  # answer nothing, and apply the write only after that time
    show_after_s: float = 0.0  # a write does not show in lookups before
    reject: int = 0  # answer 422
    lookups_down: bool = False  # answer 503 to lookups
    honours_keys: bool = True  # one key is applied once
    key_lifetime_s: float = 1e9  # a key is forgotten after that


class Provider:
    """What it has applied, kept in SQLite, and how it behaves."""

    def __init__(self, path: str) -> None:
        self.behaviour = Behaviour()
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("CREATE TABLE IF NOT EXISTS effects (key TEXT, customer TEXT, plan TEXT, at REAL)")
        self._database.execute("CREATE TABLE IF NOT EXISTS contacts (key TEXT, what TEXT, at REAL)")

    def use(self, name: str) -> bool:
        """Return whether a counted behaviour is due, and count it down."""
        with self._lock:
            left: int = getattr(self.behaviour, name)
            setattr(self.behaviour, name, max(left - 1, 0))
            return left > 0

    def log(self, key: str, what: str) -> None:
        """Keep that somebody asked for a write, or for what became of it."""
        with self._lock:
            self._database.execute("INSERT INTO contacts VALUES (?, ?, ?)", (key, what, time.time()))

    def apply(self, key: str, customer: str, plan: str, *, once: bool = True) -> bool:
        """Apply a write; False: it is to be applied *once*, its key is known, and nothing is done."""
        with self._lock:
            newest = self._database.execute("SELECT max(at) FROM effects WHERE key = ?", (key,)).fetchone()[0]
            known = newest is not None and newest > time.time() - self.behaviour.key_lifetime_s
            if known and once and self.behaviour.honours_keys:
                return False
            self._database.execute("INSERT INTO effects VALUES (?, ?, ?, ?)", (key, customer, plan, time.time()))
            return True

    def find(self, key: str) -> dict[str, str] | None:
        """Return what was applied under *key* and shows by now."""
        with self._lock:
            shown = time.time() - self.behaviour.show_after_s
            row = self._database.execute("SELECT customer, plan FROM effects WHERE key = ? AND at <= ?", (key, shown)).fetchone()
            return {"id": key[:8], "customer": row[0], "plan": row[1]} if row else None

    def effects(self) -> dict[str, int]:
        """Return how often each key was applied."""
        with self._lock:
            return dict(self._database.execute("SELECT key, count(*) FROM effects GROUP BY key").fetchall())

    def behave(self, changes: Mapping[str, Any]) -> None:
        """Change the behaviour, field by field."""
        for field in fields(Behaviour):
            if field.name in changes:
                setattr(self.behaviour, field.name, changes[field.name])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    provider: Provider

    def do_GET(self) -> None:
        """Answer a lookup."""
        if self.path == "/effects":
            self._answer(200, self.provider.effects())
            return
        key = self.path.removeprefix("/plans/")
        self.provider.log(key, "lookup")
        if self.provider.behaviour.lookups_down:
            self._answer(503, {"error": "try again later"})
            return
        found = self.provider.find(key)
        self._answer(404, {"error": "nothing was applied under this key"}) if found is None else self._answer(200, found)

    def do_POST(self) -> None:
        """Take a write, in whatever way it is to be taken."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path == "/behaviour":
            self.provider.behave(body)
            self._answer(200, {})
            return
        key, reference = self.headers.get("Idempotency-Key"), body.pop("reference", "")
        self.provider.log(key or reference, "write")
        self._write(key or reference, body, once=key is not None)

    def _write(self, key: str, body: dict[str, str], *, once: bool) -> None:
        provider, behaviour = self.provider, self.provider.behaviour
        if provider.use("drop_requests"):
            self._hang_up()
        elif provider.use("reject"):
            self._answer(422, {"error": "no such plan"})
        elif behaviour.apply_later_s:
            threading.Timer(behaviour.apply_later_s, provider.apply, (key, body["customer"], body["plan"]), {"once": once}).start()
            self._hang_up()
        else:
            time.sleep(behaviour.delay_s)
            created = provider.apply(key, body["customer"], body["plan"], once=once)
            drop = provider.use("drop_answers")
            time.sleep(behaviour.answer_after_s)
            self._hang_up() if drop else self._created(201 if created else 200, {"id": key[:8], **body})

    def _created(self, status: int, body: object) -> None:
        self._answer(status, body)
        if self.provider.use("answer_twice"):
            self._answer(status, body)

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def serve(path: str, port: int = 0) -> tuple[ThreadingHTTPServer, Provider]:
    """Return a server that listens on *port* (0: any) of this machine, and its provider; call `serve_forever`."""
    provider = Provider(path)
    handler = type("Bound", (Handler,), {"provider": provider})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    return server, provider


if __name__ == "__main__":
    listening, _ = serve(sys.argv[2] if len(sys.argv) > 2 else ":memory:", int(sys.argv[1]) if len(sys.argv) > 1 else 8765)
    print(f"listening on {listening.server_address[1]}", flush=True)
    listening.serve_forever()
