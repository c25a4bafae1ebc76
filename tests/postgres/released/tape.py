"""Records a store's statements with their answers, and executes them again on another database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romulus.store.postgres.session import OwnSession

HERE = Path(__file__).parent
# Sent in the background whenever there is time, or about the schema itself.
UNKNOWN = "?"
LOOKS = ("claim.look", "match.head")  # answer with what the next look may pass over: the server's own numbers
LEFT_OUT = ("notify", "schema.", "clock.read")


class Tape:
    """Statements in the order they were answered: number of the connection, SQL, values, rows; a string is a mark."""

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        self.entries = list(entries)
        self._connections: dict[int, int] = {}

    # ---- recording -------------------------------------------------------------------------------
    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what every store in this process executes."""
        rows, plain, tape = OwnSession.rows, OwnSession.plain, self

        async def recorded_rows(session: OwnSession, name: Any, sql: Any, *args: Any) -> Any:
            found = await rows(session, name, sql, *args)
            tape._add(session, name, sql, args, [list(row) for row in found])
            return found

        async def recorded_plain(session: OwnSession, name: Any, sql: Any) -> None:
            await plain(session, name, sql)
            tape._add(session, name, sql, None, None)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OwnSession, "rows", recorded_rows)
            patch.setattr(OwnSession, "plain", recorded_plain)
            yield

    def mark(self, name: str) -> None:
        """Note a moment."""
        self.entries.append(name)

    def _add(self, session: OwnSession, name: str, sql: str, args: Any, found: Any) -> None:
        if not name.startswith(LEFT_OUT):
            number = self._connections.setdefault(id(session.connection), len(self._connections))
            self.entries.append([number, sql, args and plainly(args), UNKNOWN if name in LOOKS else plainly(found)])

    # ---- keeping ---------------------------------------------------------------------------------
    def save(self, schema: int) -> None:
        """Write the tape; each SQL text once."""
        texts = sorted({entry[1] for entry in self.entries if not isinstance(entry, str)})
        entries = [e if isinstance(e, str) else [e[0], texts.index(e[1]), *e[2:]] for e in self.entries]
        lines = [json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in ([texts], *entries)]
        path_of(schema).write_text("\n".join(lines) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, schema: int) -> Tape:
        """Read the tape of a schema's release."""
        (texts,), *entries = [json.loads(line) for line in path_of(schema).read_text(encoding="utf-8").splitlines()]
        return cls([e if isinstance(e, str) else [e[0], texts[e[1]], *e[2:]] for e in entries])

    def until(self, mark: str) -> Tape:
        """Cut off what comes before a mark, and return it."""
        at = self.entries.index(mark)
        before, self.entries = Tape(self.entries[:at]), self.entries[at + 1 :]
        return before


class Player:
    """The connections of a worker that only a tape is left of."""

    def __init__(self, url: str, stranger: str = "") -> None:
        """*stranger*: a worker that was not there when the tape was made; rows that begin with its ID are passed over."""
        self._url, self._stranger = url, stranger
        self._connections: dict[int, Any] = {}

    async def play(self, tape: Tape) -> None:
        """Execute every statement and require the answer of then."""
        for number, sql, args, found in tape.entries:
            connection = await self._connection(number)
            if found is None:
                await connection.execute(sql)
                continue
            rows = await connection.fetch(sql, *(typed(value) for value in args or ()))
            if found == UNKNOWN:
                continue
            answer = plainly([list(row) for row in rows if row[0] != self._stranger])
            assert sorted(map(repr, answer)) == sorted(map(repr, found)), sql

    async def __aenter__(self) -> Player:
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Disconnect."""
        for connection in self._connections.values():
            await connection.close()

    async def _connection(self, number: int) -> Any:
        if number not in self._connections:
            self._connections[number] = await asyncpg.connect(self._url, statement_cache_size=0)
        return self._connections[number]


def plainly(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(value).hex()}
    return [plainly(item) for item in value] if isinstance(value, (list, tuple, asyncpg.Record)) else value


def typed(value: Any) -> Any:
    """Return a value as the driver takes it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return [typed(item) for item in value] if isinstance(value, list) else value


def path_of(schema: int) -> Path:
    """Return the file of a schema's tape."""
    return HERE / f"schema-{schema}.jsonl"
