"""Looks at a store from beside the engine: how many runs have a status."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import apsw
import psycopg

LOOK_S = 0.02
PATIENCE_S = 300.0


class Rows(Protocol):
    """A connection for looking."""

    def one(self, sql: str) -> int:
        """Return the number that a statement answers."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class FileRows:
    """A connection of its own to a SQLite store (apsw, the engine's own build: another one would drop its locks)."""

    def __init__(self, url: str) -> None:
        self._connection: Any = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READWRITE)

    def one(self, sql: str) -> int:
        """Return the number that a statement answers."""
        return int(self._connection.execute(sql).fetchall()[0][0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class ServerRows:
    """A connection of its own to a PostgreSQL store."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._connection.execute("SET search_path = romulus")

    def one(self, sql: str) -> int:
        """Return the number that a statement answers."""
        row = self._connection.execute(sql.encode()).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Observer:
    """Counts runs by status."""

    def __init__(self, url: str) -> None:
        self._rows: Rows = ServerRows(url) if url.startswith("postgresql") else FileRows(url)

    def count(self, status: str) -> int:
        """Return how many runs have that status now."""
        return self._rows.one(f"SELECT count(*) FROM runs WHERE status = '{status}'")

    async def until(self, status: str, count: int) -> None:
        """Wait until that many runs have the status.

        Raises:
            TimeoutError
        """
        async with asyncio.timeout(PATIENCE_S):
            while self.count(status) < count:
                await asyncio.sleep(LOOK_S + count / 500_000)  # counting scans the table: not so often that it is felt

    def close(self) -> None:
        """Close the connection."""
        self._rows.close()
