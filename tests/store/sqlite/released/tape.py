"""Records a store's statements with their answers, and executes them again on another file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

from romulus.store.sqlite import connection, session
from tests.store.tape import Tape, plainly, typed

HERE = Path(__file__).parent
CHANGING = ("INSERT", "UPDATE", "DELETE")


class SQLiteTape(Tape):
    """A tape of what a store executes on SQLite."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what every store in this process executes."""
        execute = connection.execute

        def recorded(on: apsw.Connection, sql: Any, bindings: Any = ()) -> Any:
            found = execute(on, sql, bindings)
            self.add(on, sql, bindings, answer_of(on, sql, found))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "execute", recorded)
            yield


class Player:
    """The connections of a worker that only a tape is left of."""

    def __init__(self, path: Path, stranger: str = "") -> None:
        """*stranger*: a worker that was not there when the tape was made; listed rows that begin with its ID are passed over."""
        self._path, self._stranger = path, stranger
        self._connections: dict[int, apsw.Connection] = {}

    def play(self, tape: Tape) -> None:
        """Execute every statement and require the answer of then."""
        for number, sql, values, answer in tape.entries:
            mine = self._connection(number)
            found = connection.execute(mine, sql, typed(values))
            assert plainly(answer_of(mine, sql, [self._known(row) for row in found])) == answer, sql

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Disconnect."""
        for mine in self._connections.values():
            mine.close()

    def _known(self, row: Any) -> Any:
        """Return a row; without the stranger, if it is a list of rows (JSON)."""
        if not (len(row) == 1 and isinstance(row[0], str) and f'["{self._stranger}",' in row[0]):
            return row
        return (json.dumps([listed for listed in json.loads(row[0]) if listed[0] != self._stranger], separators=(",", ":")),)

    def _connection(self, number: int) -> apsw.Connection:
        if number not in self._connections:
            self._connections[number] = apsw.Connection(str(self._path))
        return self._connections[number]


def answer_of(on: apsw.Connection, sql: str, found: Any) -> Any:
    """Return how many rows a statement changed, None for one that changes none, and the rows it found."""
    return [on.changes() if sql.startswith(CHANGING) else None, found]


def tape_of(schema: int) -> Path:
    """Return where a schema's tape is kept."""
    return HERE / f"schema-{schema}.jsonl"
