"""Records a store's statements with their answers, and executes them again on another database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from romulus.store.postgres.session import OwnSession
from tests.store.tape import Tape, plainly, typed

HERE = Path(__file__).parent
# Sent in the background whenever there is time, or about the schema itself.
UNKNOWN = "?"
LOOKS = ("claim.look", "match.head")  # answer with what the next look may pass over: the server's own numbers
LEFT_OUT = ("notify", "schema.", "clock.read")


class PostgresTape(Tape):
    """A tape of what a store executes on PostgreSQL."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what every store in this process executes."""
        rows, plain, tape = OwnSession.rows, OwnSession.plain, self

        async def recorded_rows(session: OwnSession, name: Any, sql: Any, *args: Any) -> Any:
            found = await rows(session, name, sql, *args)
            if not name.startswith(LEFT_OUT):
                tape.add(session.connection, sql, args, UNKNOWN if name in LOOKS else found)
            return found

        async def recorded_plain(session: OwnSession, name: Any, sql: Any) -> None:
            await plain(session, name, sql)
            if not name.startswith(LEFT_OUT):
                tape.add(session.connection, sql, None, None)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OwnSession, "rows", recorded_rows)
            patch.setattr(OwnSession, "plain", recorded_plain)
            yield


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


def path_of(schema: int) -> Path:
    """Return the file of a schema's tape."""
    return HERE / f"schema-{schema}.jsonl"
