"""A look at a PostgreSQL store in the words of SQLite's tables, so that one test can ask both."""

from __future__ import annotations

from typing import Any

from tests.postgres.server import Database

VIEWS = (
    (
        "CREATE TEMP VIEW events AS SELECT e.id, d.event, d.run, coalesce(d.how, 'unmatched') AS state "
        "FROM romulus.events e LEFT JOIN dealt d ON d.event = e.arrival"
    ),
    "CREATE TEMP VIEW runs AS SELECT *, (key << 24) | generation AS generation_key FROM romulus.runs",
    (
        "CREATE TEMP VIEW journal AS SELECT (run << 24) | generation AS generation, position, kind, seq, name, attempt, transition, fence, "
        "at, body, info, digest FROM romulus.journal"
    ),
    "CREATE TEMP VIEW attempts AS SELECT run, (run << 24) | generation AS generation, seq, number, failures, losses FROM romulus.attempts",
)


class Inspection:
    """A connection to PostgreSQL that is used as one to SQLite is."""

    def __init__(self, database: Database) -> None:
        self._connection = database.server.connect(database.name)
        self._connection.execute("SET search_path = romulus, public")
        for view in VIEWS:
            self._connection.execute(view)  # type: ignore[arg-type]

    def execute(self, sql: str, bindings: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(sql.replace("?", "%s"), bindings or None)  # type: ignore[arg-type]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Inspection:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
