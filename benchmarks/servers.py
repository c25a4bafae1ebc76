"""The PostgreSQL server of a run, and a database for each benchmark; on SQLite each has its directory and nothing else."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Protocol

import psycopg

from tests.postgres.server import running

from .plan import SQLITE

# As durable as a server is by default; the tests' server is not.
SETTINGS = {
    "fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "15min",
    "autovacuum_naptime": "10s",
}  # fmt: skip


class Databases(Protocol):
    """Where benchmarks get their databases from."""

    def lend(self) -> AbstractContextManager[str]:
        """Give the URL of an empty database while entered; nothing where the store is a file."""
        ...


class Files:
    """SQLite: a benchmark makes its file itself."""

    def lend(self) -> AbstractContextManager[str]:
        """Give nothing."""
        return nullcontext("")


class OneServer:
    """Databases of one server."""

    def __init__(self, url: str) -> None:
        self._url, self._numbers = url, count(1)

    @contextmanager
    def lend(self) -> Generator[str, None, None]:
        """Give the URL of an empty database while entered."""
        name = f"romulus_benchmark_{next(self._numbers)}"
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield self._url.rsplit("/", 1)[0] + f"/{name}"
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def databases(store: str, directory: Path) -> Generator[Databases, None, None]:
    """Give the databases of *store*: sqlite, postgres (a server of its own below *directory*) or the URL of a server."""
    if store == SQLITE:
        yield Files()
    elif store.startswith("postgresql://"):
        yield OneServer(store)
    else:
        with running(directory=directory, **SETTINGS) as server:
            yield OneServer(server.url())
