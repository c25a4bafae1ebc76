"""The life of a worker on SQLite.

    uv run python -m tests.store.sqlite.released.life

records it for the schema of this release, before that is released; from then on tape and file stay as they are.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import apsw

from romulus.store.sqlite import SQLiteStore, place_of
from romulus.store.sqlite.schema import VERSION
from tests.store.life import StillHost, live
from tests.store.sqlite.released.tape import HERE, SQLiteTape, tape_of

PRAGMAS = ("application_id", "user_version")
TABLES = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name <> 'sqlite_sequence' ORDER BY rowid"
OTHERS = "SELECT sql FROM sqlite_schema WHERE type <> 'table' AND sql <> '' ORDER BY rowid"


async def record(path: Path) -> tuple[SQLiteTape, str]:
    """Return the tape of this release, made on a new file, and the file in the middle of it as SQL."""
    host, tape, middle = StillHost(), SQLiteTape(), ""
    store = SQLiteStore(place_of(str(path)), host)

    def moment(name: str) -> None:
        nonlocal middle
        tape.mark(name)
        middle = dump(path)

    await store.open()
    with tape.recording():
        await live(store, host, moment)
    await store.close()
    host.close()
    return tape, middle


def dump(path: Path) -> str:
    """Return the file as SQL."""
    connection = apsw.Connection(str(path))
    tables: list[Any] = connection.execute(TABLES).fetchall()
    lines = [f"PRAGMA {name} = {connection.pragma(name)}" for name in PRAGMAS] + [sql for _, sql in tables]
    for name, _ in tables:
        lines += rows(connection, name)
    lines += ["DELETE FROM sqlite_sequence", *rows(connection, "sqlite_sequence"), *(sql for (sql,) in connection.execute(OTHERS))]
    connection.close()
    return "".join(f"{line};\n" for line in lines)


def rows(connection: apsw.Connection, table: str) -> list[str]:
    """Return the rows of a table as SQL."""
    columns = [column for _, column, *_ in connection.execute(f"PRAGMA table_info({table})")]
    quoted = ", ".join(f"quote({column})" for column in columns)
    found = connection.execute(f"SELECT {quoted} FROM {table}")
    return [f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(row)})" for row in found]


def restore(sql: str, path: Path) -> None:
    """Make the file that was dumped."""
    connection = apsw.Connection(str(path))
    connection.execute(f"BEGIN; {sql} COMMIT").fetchall()
    connection.pragma("journal_mode", "wal")
    connection.close()


def file_of(schema: int) -> Path:
    """Return where a file with a schema is kept."""
    return HERE / f"schema-{schema}.sql"


def main() -> None:
    """Write the tape and the file of this release's schema."""
    with tempfile.TemporaryDirectory() as directory:
        tape, middle = asyncio.run(record(Path(directory) / "store.db"))
    tape.save(tape_of(VERSION))
    file_of(VERSION).write_text(middle, encoding="utf-8")
    print(f"schema {VERSION}: {len(tape.entries)} statements")


if __name__ == "__main__":
    main()
