"""Many rows in one statement: `VALUES` lists of exact size, kept by size.

Measured (docs/decisions/0002-sqlite-group-commit.md): against a busy event loop one statement of 200 rows is done in 16 ms, 200
statements in 200 ms, since each gives the interpreter lock away. A prepared statement takes 1.4 kB a row, so there are few sizes: more
rows than `STEP` are a multiple of it and a rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, LiteralString

from .connection import Row
from .session import Session

ROWS_MAX: Final = 256  # of one statement
STEP: Final = 32


class Bulk:
    """A statement about many rows: *before* `VALUES (?, …), …` *after*."""

    def __init__(self, name: LiteralString, before: LiteralString, width: int, after: LiteralString = "") -> None:
        self.name: LiteralString = name
        self._before: LiteralString = before
        self._after: LiteralString = after
        self._row: LiteralString = "(" + "?, " * (width - 1) + "?)"
        self._by_size: dict[int, LiteralString] = {}

    def sql(self, rows: int) -> LiteralString:
        """Return the statement for that many rows."""
        sql = self._by_size.get(rows)
        if sql is None:
            values: LiteralString = (self._row + ", ") * (rows - 1) + self._row
            sql = self._by_size[rows] = f"{self._before} VALUES {values} {self._after}"
        return sql

    def write(self, session: Session, rows: Sequence[Row]) -> int:
        """Execute it about *rows* and return how many rows were changed."""
        return sum(session.count(self.name, self.sql(len(some)), flat(some)) for some in chunks(rows))


def chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield *rows* in pieces that fit one statement, of few sizes."""
    first = 0
    while left := len(rows) - first:
        size = left if left < STEP else min(left // STEP * STEP, ROWS_MAX)
        yield rows[first : first + size]
        first += size


def flat(rows: Sequence[Row]) -> list[Any]:
    """Return the values of all rows, one after another."""
    values: list[Any] = []
    for row in rows:
        values += row
    return values
