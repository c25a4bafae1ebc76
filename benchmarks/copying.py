"""Very many rows, made with SQL: copies of runs that the engine has parked or finished itself."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import apsw
import psycopg

PAGES_KB = 512_000  # SQLite's cache while rows are copied
PIECE = 500_000  # rows of a statement


class Copies(Protocol):
    """Makes copies in one store."""

    def parked(self, count: int) -> None:
        """Copy the run that is parked, with keys, ID and due time of their own."""
        ...

    def finished(self, count: int) -> None:
        """Copy a run that has succeeded, its journal included."""
        ...

    def due(self, count: int) -> None:
        """Copy the parked run as runs that became due one after another, the last of them now."""
        ...

    def taken(self, count: int) -> None:
        """Make runs due, then claim and finish them, as their rows and the queue see it."""
        ...

    def open_transaction(self) -> AbstractContextManager[None]:
        """Keep a transaction open that has looked at the runs."""
        ...

    def tidy(self) -> None:
        """Leave nothing of the copying to be done later."""
        ...


@contextmanager
def copies(url: str) -> Generator[Copies, None, None]:
    """Give what makes copies in the store at *url*, on a connection of its own."""
    if url.startswith("postgresql"):
        with server_copies(url) as copied:
            yield copied
    else:
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        yield FileCopies(connection)
        connection.close()


@contextmanager
def server_copies(url: str) -> Generator[ServerCopies, None, None]:
    """Give what makes copies in a PostgreSQL database, and measures them."""
    with psycopg.connect(url, autocommit=True) as connection:
        yield ServerCopies(connection)


class FileCopies:
    """Copies in a SQLite file."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        connection.execute(f"PRAGMA cache_size = -{PAGES_KB}").fetchall()

    def parked(self, count: int) -> None:
        """Copy the run that is parked: its row and its generation."""
        run_key, generation = self._rows("SELECT key, generation_key FROM runs WHERE status = 'waiting' ORDER BY key")[0]
        with self._connection:
            first, first_generation = self._highest("runs") + 1, self._highest("generations") + 1
            own = {"key": f"{first} + n", "generation_key": f"{first_generation} + n", "id": f"id || '~' || ({first} + n)"}
            own |= {"wake_at": "wake_at + n", "queue_at": "queue_at + n"}
            self._insert("runs", own, run_key, count)
            self._insert("generations", {"key": f"{first_generation} + n", "run": f"{first} + n"}, generation, count)

    def finished(self, count: int) -> None:
        """Not measured on SQLite."""
        raise NotImplementedError

    due = taken = finished

    def tidy(self) -> None:
        """Do nothing: SQLite leaves nothing to be done later."""

    def open_transaction(self) -> AbstractContextManager[None]:
        """Not measured on SQLite."""
        raise NotImplementedError

    def _highest(self, table: str) -> int:
        return int(self._rows(f"SELECT max(key) FROM {table}")[0][0])

    def _rows(self, sql: str) -> Any:
        return self._connection.execute(sql).fetchall()

    def _insert(self, table: str, own: dict[str, str], key: int, count: int) -> None:
        """Copy the row *key* of *table* that many times; *own* has the columns that differ, by an expression of n."""
        columns = [str(row[1]) for row in self._rows(f"PRAGMA table_info({table})")]
        values = ", ".join(own.get(column, column) for column in columns)
        self._connection.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < ?) "
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM numbers CROSS JOIN (SELECT * FROM {table} WHERE key = ?)",
            (count, key),
        ).fetchall()


class ServerCopies:
    """Copies in a PostgreSQL database."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.execute("SET search_path = romulus")

    def parked(self, count: int) -> None:
        """Copy the run that is parked: its row, its generation and what it waits for."""
        own = {"wake_at": "wake_at + n", "queue_at": "queue_at + n", "correlation_id": "correlation_id || '~' || n"}
        self._copy("waiting", count, own, "waits")

    def finished(self, count: int) -> None:
        """Copy a run that has succeeded: its row, its generation and its journal."""
        self._copy("succeeded", count, {}, "journal")

    def due(self, count: int) -> None:
        """Copy the parked run as runs that became due one after another."""
        at = f"clock() - {count} + n"
        self._copy("waiting", count, {"wake_at": at, "queue_at": at})

    def taken(self, count: int) -> None:
        """Make runs due, then take them out of their queue, piece by piece."""
        for done in range(0, count, 1_000):
            first = self._highest() + 1
            self.due(min(1_000, count - done))
            self.execute(
                "UPDATE runs SET queue_at = NULL, wake_at = NULL, status = 'succeeded', finished_at = clock(), "
                f"queued_by = xid() WHERE key >= {first}"
            )

    @contextmanager
    def open_transaction(self) -> Generator[None, None, None]:
        """Keep a transaction open that has looked at the runs."""
        with psycopg.connect(self._connection.info.dsn, user=self._connection.info.user) as other:
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT key FROM romulus.runs LIMIT 1")
            yield

    def tidy(self) -> None:
        """Vacuum, analyse and write out, so that nothing of the copying is left to do later."""
        self.execute("VACUUM ANALYZE")
        self.execute("CHECKPOINT")

    def one(self, sql: str) -> Any:
        """Return what a statement answers."""
        row = self._connection.execute(sql.encode()).fetchone()
        assert row is not None
        return row[0]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows that a statement answers."""
        return self._connection.execute(sql.encode()).fetchall()

    def execute(self, sql: str) -> None:
        """Execute a statement."""
        self._connection.execute(sql.encode())

    def _copy(self, status: str, count: int, own: dict[str, str], *more: str) -> None:
        key = self.one(f"SELECT min(key) FROM runs WHERE status = '{status}'")
        for done in range(0, count, PIECE):
            first = self._highest() + 1
            last = min(PIECE, count - done) - 1
            mine = own | {"key": f"{first} + n", "id": f"id || '~' || ({first} + n)", "queued_by": "xid()"}
            self._insert("runs", mine, f"key = {key}", last)
            for table in ("generations", *more):
                self._insert(table, own | {"run": f"{first} + n"}, f"run = {key}", last)
            self.execute(f"SELECT setval('run_keys', {first + last})")

    def _highest(self) -> int:
        return int(self.one("SELECT last_value FROM run_keys"))

    def _insert(self, table: str, own: dict[str, str], which: str, last: int) -> None:
        """Copy the rows *which* of *table* for n from 0 to *last*; *own* has the columns that differ, by an expression of n."""
        sql = (
            f"SELECT attname FROM pg_attribute WHERE attrelid = 'romulus.{table}'::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attidentity = ''"
        )
        columns = [str(name) for (name,) in self.rows(sql)]
        values = ", ".join(own.get(column, column) for column in columns)
        self.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM generate_series(0, {last}) n "
            f"CROSS JOIN (SELECT * FROM {table} WHERE {which}) x"
        )
