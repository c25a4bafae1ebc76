"""The migrator: makes or upgrades the schema under the file's exclusive lock, and verifies the schema that is actually there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import apsw

from romulus.core.errors import NotOurFile, StoreSchemaError, StoreUnavailable

from .connection import execute
from .schema import APPLICATION_ID, NAMED_ATTEMPTS, POOLED_OPERATIONS, RESTORING, TABLES, VERSION
from .session import Session

# Number n leads from schema n - 1 to n. Additive within a major version: workers of the release before keep working.
MIGRATIONS: Final[tuple[Sequence[LiteralString], ...]] = (TABLES, RESTORING, POOLED_OPERATIONS, NAMED_ATTEMPTS)
OBJECTS: Final = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
assert len(MIGRATIONS) == VERSION


def migrate(session: Session) -> None:
    """Bring the file to this release's schema; several processes may try at once, one does it.

    Raises:
        NotOurFile: it holds something else; untouched. StoreSchemaError: a newer, interrupted or altered schema.
    """
    check_ours(session)
    if version_of(session) < VERSION or not _objects(session):
        session.write(lambda s, _: _upgrade(s))
    verify(session)


def prepare(session: Session) -> None:
    """Open the file for work: refuse what is not ours before anything is written, then WAL, then the schema."""
    check_ours(session)
    if session.connection.readonly("main"):
        raise StoreUnavailable(f"{session.place.shown} cannot be written: make the file and its directory writable")
    if not session.place.memory:
        mode = session.read(lambda s: s.value("schema.wal", "PRAGMA journal_mode = WAL"))
        if mode != "wal":
            raise StoreUnavailable(f"{session.place.shown}: the file system does not offer write-ahead logging: use a local disk")
    migrate(session)


def check(session: Session) -> str:
    """Return in words what `migrate` would do; raise what it would raise."""
    check_ours(session)
    version = version_of(session)
    if version == VERSION:
        verify(session)
        return f"schema {version} is up to date"
    return f"schema {version} would be migrated to {VERSION}"


def check_ours(session: Session) -> None:
    """Refuse a database that another program made."""
    shown = session.place.shown
    application = session.read(lambda s: s.value("schema.application", "PRAGMA application_id"))
    if application == APPLICATION_ID:
        return
    if application or session.read(_objects):
        raise NotOurFile(f"{shown} is a SQLite database of another program; it was left untouched: name another file")


def version_of(session: Session) -> int:
    """Return the schema version that the file says it has, 0 for a new one.

    Raises:
        StoreSchemaError: it is newer than this release.
    """
    version: int = session.read(lambda s: s.value("schema.version", "PRAGMA user_version"))
    if version > VERSION:
        raise StoreSchemaError(
            f"{session.place.shown} has schema {version}, this release works with {VERSION}: use the release that wrote it, or a newer one"
        )
    return version


def verify(session: Session) -> None:
    """Compare the schema that is there with the one expected.

    Raises:
        StoreSchemaError: naming what is missing, altered or foreign.
    """
    found, expected = session.read(_objects), _expected()
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is altered" for name in sorted(expected.keys() & found.keys()) if expected[name] != found[name]]
    wrong += [f"{name} is not ours" for name in sorted(found.keys() - expected.keys()) if not _is_users(session, name)]
    if wrong:
        raise StoreSchemaError(
            f"{session.place.shown} says it has schema {VERSION}, but {', '.join(wrong)}: a migration was interrupted or the schema was "
            "changed by hand; restore a backup"
        )


def _upgrade(session: Session) -> None:
    version = version_of(session)  # again, under the lock: another process may have been first
    if version == 0 and _objects(session):
        raise StoreSchemaError(f"{session.place.shown} has tables but says it has none: a migration was interrupted; restore a backup")
    for number in range(version, VERSION):
        for statement in MIGRATIONS[number]:
            session.run("schema.migrate", statement)
    if version == 0:
        incarnation = f"{session.host.random_bits(128):032x}"
        session.run("schema.incarnation", "INSERT INTO meta (name, value) VALUES ('incarnation', ?)", (incarnation,))
        session.run("schema.mark", "PRAGMA application_id = 1383034229")
    session.run("schema.number", "PRAGMA user_version = 4")


def _objects(session: Session) -> dict[str, str]:
    rows = session.run("schema.objects", OBJECTS)
    return {name: _normal(sql) for _, name, sql in rows if sql}


def _expected() -> dict[str, str]:
    blank = apsw.Connection(":memory:")
    try:
        for migration in MIGRATIONS:
            for statement in migration:
                execute(blank, statement)
        return {name: _normal(sql) for _, name, sql in execute(blank, OBJECTS) if sql}
    finally:
        blank.close()


def _normal(sql: str) -> str:
    return " ".join(sql.split())


def _is_users(session: Session, name: str) -> bool:
    """Return whether *name* is a table of a transactional step's own, or belongs to one: those may live in our file."""
    owner = session.read(lambda s: s.value("schema.owner", "SELECT tbl_name FROM sqlite_schema WHERE name = ?", (name,)))
    return owner not in _expected()
