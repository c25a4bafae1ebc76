"""The migrator: makes or upgrades the schema under an advisory lock, and verifies the schema that is actually there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, LiteralString

from romulus.core.errors import ConfigurationError, StoreSchemaError, StoreUnavailable

from .faults import LOCKED, state_of, text_of
from .pool import DRIVER_ERRORS, Pool
from .schema import COMPATIBLE, NAMED_ATTEMPTS, POOLED_OPERATIONS, RESTORING, TABLES, VERSION
from .session import OwnSession

# Number n leads from schema n - 1 to n. Additive within a major version: workers of the release before keep working.
# What they do is kept on tape, and a schema is released with its tape: tests/postgres/released.
MIGRATIONS: Final[tuple[Sequence[LiteralString], ...]] = (TABLES, RESTORING, POOLED_OPERATIONS, NAMED_ATTEMPTS)
assert len(MIGRATIONS) == VERSION

LOCK: Final[LiteralString] = "SELECT set_config('lock_timeout', '60s', true), pg_advisory_xact_lock(1383034229, -1)"
# While a statement waits for a table, everybody who comes later waits behind it: it gives up soon, and all is tried again after a pause.
BRIEFLY: Final[LiteralString] = "SET LOCAL lock_timeout = '300ms'"
PAUSE_S: Final = 1.0
TRIES_MAX: Final = 60
# Read from the catalogue's tables: `to_regclass` answers from a cache that waiting for an advisory lock does not refresh.
THERE: Final[LiteralString] = (
    "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'romulus' AND "
    "c.relname = 'meta')"
)
META: Final[LiteralString] = "SELECT name, value FROM romulus.meta"
# What would stand in the way of a schema that is made.
TAKEN: Final[LiteralString] = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'romulus' "
    "AND c.relname = ANY($1::text[]) UNION ALL SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
    "WHERE n.nspname = 'romulus' AND p.pronargs = 0 AND p.proname = ANY($1::text[]) ORDER BY 1"
)
COLUMNS: Final[LiteralString] = (
    "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid "
    "WHERE n.nspname = 'romulus' AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"
)
INDEXES: Final[LiteralString] = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'romulus' AND i.indisvalid"
)
RIGHTS: Final[LiteralString] = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'romulus' AND c.relkind = 'r' "
    "AND c.relname <> 'meta' AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') "
    "AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')) ORDER BY 1"
)
# Those of identity columns are not among them: whoever may insert may draw from them.
CALLED: Final[LiteralString] = (
    "SELECT 'sequence', c.relname, has_sequence_privilege(c.oid, 'USAGE') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'romulus' AND c.relkind = 'S' UNION ALL SELECT 'function', p.proname, has_function_privilege(p.oid, 'EXECUTE') "
    "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'romulus' AND p.pronargs = 0"
)
INCARNATION: Final[LiteralString] = "INSERT INTO romulus.meta (name, value) VALUES ('incarnation', $1)"
MARK: Final[LiteralString] = (
    "INSERT INTO romulus.meta (name, value) VALUES ('version', $1), ('compatible', $2) ON CONFLICT (name) DO UPDATE SET "
    "value = excluded.value"
)


async def prepare(pool: Pool) -> None:
    """Bring the database to this release's schema; several processes may try at once, one does it.

    Raises:
        StoreSchemaError: a newer, interrupted or altered schema. ConfigurationError: this role may not migrate or use it.
    """
    try:
        if await version_of(pool) < VERSION:
            await _migrate(pool)
        await verify(pool)
    except StoreUnavailable as error:
        if error.__cause__ is not None and state_of(error.__cause__) == "42501":
            raise ConfigurationError(
                f"{pool.place.shown}: this role may not make, change or use the schema romulus ({text_of(error.__cause__)}): run "
                "`romulus migrate` as a role that may, and grant this one USAGE on it, SELECT, INSERT, UPDATE and DELETE on its tables, "
                "and USAGE on its sequences"
            ) from error
        raise


async def check(pool: Pool) -> str:
    """Return in words what `prepare` would do; raise what it would raise."""
    version = await version_of(pool)
    if version == 0:
        return "the schema does not exist yet and would be made"
    if version < VERSION:
        return f"schema {version} would be migrated to {VERSION}"
    await verify(pool)
    return f"schema {version} is up to date"


async def missing_sql(pool: Pool) -> str:
    """Return the SQL that `prepare` would execute, for an administrator to apply; raise what `prepare` would raise."""
    version = await version_of(pool)
    if version < VERSION:
        return plain_sql(version)
    await verify(pool)
    return f"-- {pool.place.shown}: schema {version} is up to date\n"


def plain_sql(version: int = 0) -> str:
    """Return the migrations from schema *version* as SQL, marks included."""
    statements = [statement for migration in MIGRATIONS[version:] for statement in migration]
    marks = f"INSERT INTO romulus.meta (name, value) VALUES ('version', '{VERSION}'), ('compatible', '{COMPATIBLE}')"  # noqa: S608
    marks += " ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    if version == 0:
        statements.append("INSERT INTO romulus.meta (name, value) VALUES ('incarnation', replace(gen_random_uuid()::text, '-', ''))")
    return ";\n".join(["BEGIN", *statements, marks, "COMMIT"]) + ";\n"


async def version_of(pool: Pool) -> int:
    """Return the schema version that the database says it has, 0 for none.

    Raises:
        StoreSchemaError: it is newer than this release can work with, a migration was interrupted, or it is none of Romulus's.
    """
    meta = await pool.read(_meta)
    if meta is None:
        await _check_free(pool)
        return 0
    version, compatible = _number(meta, "version"), _number(meta, "compatible")
    if not version or not compatible:
        raise StoreSchemaError(f"{pool.place.shown} has a schema romulus that says no version: restore a backup, or drop it if it is empty")
    if compatible > VERSION:
        raise StoreSchemaError(
            f"{pool.place.shown} has schema {version}, which needs a release for schema {compatible} or newer; "
            f"this one is for schema {VERSION}: upgrade it"
        )
    return version


async def verify(pool: Pool) -> None:
    """Compare the schema that is there with the one expected; what a newer release added is no fault.

    Raises:
        StoreSchemaError: naming what is missing or altered. ConfigurationError: rights are missing.
    """
    columns = {f"{table}.{column}": kind for table, column, kind in await pool.rows("schema.columns", COLUMNS)}
    indexes = {name for (name,) in await pool.rows("schema.indexes", INDEXES)}
    expected, wanted = expected_columns(), expected_indexes()
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - columns.keys())]
    wrong += [f"{name} is {columns[name]}, not {expected[name]}" for name in sorted(expected.keys() & columns.keys())
              if columns[name] != expected[name]]  # fmt: skip
    wrong += [f"index {name} is missing or invalid" for name in sorted(wanted - indexes)]
    may_call = {(kind, name): may for kind, name, may in await pool.rows("schema.called", CALLED)}
    called = sorted(expected_called())
    wrong += [f"{kind} {name} is missing" for kind, name in called if (kind, name) not in may_call]
    if wrong:
        raise StoreSchemaError(
            f"{pool.place.shown} says it has schema {VERSION}, but {', '.join(wrong[:10])}: the schema was changed by hand; restore "
            f"a backup"
        )
    tables = [name for (name,) in await pool.rows("schema.rights", RIGHTS)]
    lacking = [f"read and write romulus.{', romulus.'.join(tables)}"] if tables else []
    lacking += [f"use the {kind} romulus.{name}" for kind, name in called if not may_call[kind, name]]
    if lacking:
        raise ConfigurationError(
            f"{pool.place.shown}: this role may not {'; nor '.join(lacking)}: grant it SELECT, INSERT, UPDATE and DELETE on tables, "
            "USAGE on sequences, EXECUTE on functions"
        )


async def _check_free(pool: Pool) -> None:
    """Refuse to make a schema where some of it is there without the table that says what it is."""
    made = {table.split(".")[0] for table in expected_columns()} | expected_indexes() | {name for _, name in expected_called()}
    taken = [name for (name,) in await pool.rows("schema.taken", TAKEN, sorted(made))]
    if taken and await pool.read(_meta) is None:  # else another process has made it meanwhile
        raise StoreSchemaError(
            f"{pool.place.shown} has a schema romulus with {', '.join(taken[:10])} and without the table meta: it is half restored, or "
            "not of Romulus. Restore the backup as a whole, or rename or drop that schema, then run `romulus migrate`"
        )


def expected_columns() -> dict[str, str]:
    """Return "table.column" → type of everything that the migrations make, as the catalogue words it."""
    found: dict[str, str] = {}
    for table, body in re.findall(r"CREATE TABLE romulus\.(\w+) \((.*)\)", _text(), re.MULTILINE):
        for column, kind, constraint in re.findall(r"(?:^|, )(\w+) (bigint|integer|text|boolean|bytea)([^,]*)", body.strip()):
            found[f"{table}.{column}"] = _kind(kind, constraint)
    for table, column, kind, constraint in re.findall(r"ALTER TABLE romulus\.(\w+) ADD COLUMN (\w+) (\w+)([^,\n]*)", _text()):
        found[f"{table}.{column}"] = _kind(kind, constraint)
    return found


def _kind(kind: str, constraint: str) -> str:
    return kind + (" not null" if "NOT NULL" in constraint or "IDENTITY" in constraint else "")


def expected_indexes() -> set[str]:
    """Return the names of the indexes that the migrations make."""
    return set(re.findall(r"CREATE (?:UNIQUE )?INDEX (\w+)", _text()))


def expected_called() -> set[tuple[str, str]]:
    """Return kind and name of the sequences and functions that the migrations make and every worker uses."""
    return {(kind.lower(), name) for kind, name in re.findall(r"CREATE (SEQUENCE|FUNCTION) romulus\.(\w+)", _text())}


def _text() -> str:
    return "\n".join(" ".join(statement.split()) for migration in MIGRATIONS for statement in migration)


async def _meta(session: OwnSession) -> dict[str, str] | None:
    if not await session.value("schema.there", THERE):
        return None
    return {row[0]: row[1] for row in await session.rows("schema.meta", META)}


def _number(meta: dict[str, str], name: str) -> int:
    """Return a number that the database says of its schema, 0 for none."""
    text = meta.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


async def _migrate(pool: Pool) -> None:
    for left in reversed(range(TRIES_MAX)):
        try:
            return await pool.write(_upgrade)
        except StoreUnavailable as error:
            if not left or error.__cause__ is None or state_of(error.__cause__) != LOCKED:
                raise
        except DRIVER_ERRORS as error:
            raise StoreSchemaError(f"{pool.place.shown}: the migration failed and was undone ({error})") from error
        await asyncio.sleep(PAUSE_S)


async def _upgrade(session: OwnSession) -> None:
    await session.rows("schema.lock", LOCK)
    await session.plain("schema.briefly", BRIEFLY)
    meta = await _meta(session)  # again, under the lock: another process may have been first
    version = _number(meta or {}, "version")
    for number in range(version, VERSION):
        for statement in MIGRATIONS[number]:
            await session.plain("schema.migrate", statement)
    if version == 0:
        await session.rows("schema.incarnation", INCARNATION, f"{session.host.random_bits(128):032x}")
    if version < VERSION:
        await session.rows("schema.mark", MARK, str(VERSION), str(COMPATIBLE))
