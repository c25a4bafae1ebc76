"""Which files are ours, which schema they have, and what is refused untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from romulus.core.errors import ConfigurationError, NotOurFile, StoreSchemaError
from romulus.core.record import AttemptRow
from romulus.store import open_store
from romulus.store.sqlite import Place, place_of
from romulus.store.sqlite.migrate import MIGRATIONS, check, prepare
from romulus.store.sqlite.schema import APPLICATION_ID, TABLES, VERSION
from romulus.store.sqlite.session import Session
from tests.store.kit import MovableHost, advance, again, claimed, entry, start, succeed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def opened(path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{path}", host)
    try:
        await store.open()
    finally:
        await store.close()


def altered(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


def session(path: Path, host: MovableHost) -> Session:
    return Session(place_of(str(path)), host, 1_000_000)


async def test_what_was_stored_is_there_after_reopening(path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    await start(store, "r1")
    await store.close()

    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    assert await store.run("default", "r1") is not None
    await store.close()


async def test_the_file_says_what_it_is(path: Path, host: MovableHost) -> None:
    await opened(path, host)

    assert int.from_bytes(path.read_bytes()[68:72], "big") == APPLICATION_ID
    opened_session = session(path, host)
    assert opened_session.value("test", "PRAGMA user_version") == VERSION
    assert len(opened_session.value("test", "SELECT value FROM meta WHERE name = 'incarnation'")) == 32
    opened_session.close()


async def test_a_restore_gives_the_file_its_new_incarnation(path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    restored = await store.restore()
    await store.close()

    looking = session(path, host)
    assert looking.value("test", "SELECT value FROM meta WHERE name = 'incarnation'") == restored.incarnation
    looking.close()


async def test_a_text_file_is_refused_untouched(path: Path, host: MovableHost) -> None:
    path.write_text("not a database, but rather long " * 100)
    before = path.read_bytes()

    with pytest.raises(NotOurFile, match="is not a SQLite database; it was left untouched"):
        await opened(path, host)

    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (x)", "PRAGMA application_id = 99"])
async def test_a_database_of_another_program_is_refused_untouched(path: Path, host: MovableHost, statement: str) -> None:
    altered(path, statement)
    before = path.read_bytes()

    with pytest.raises(NotOurFile, match="of another program; it was left untouched"):
        await opened(path, host)

    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["store.db"]


async def test_an_empty_file_becomes_a_store(path: Path, host: MovableHost) -> None:
    path.touch()

    await opened(path, host)

    assert path.stat().st_size > 0


async def test_a_newer_schema_is_refused(path: Path, host: MovableHost) -> None:
    await opened(path, host)
    altered(path, f"PRAGMA user_version = {VERSION + 1}")

    with pytest.raises(StoreSchemaError, match=f"has schema {VERSION + 1}, this release works with {VERSION}"):
        await opened(path, host)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DROP INDEX runs_due", "runs_due is missing"),
        ("ALTER TABLE runs ADD COLUMN extra TEXT", "runs is altered"),
        ("CREATE INDEX more ON runs (status)", "more is not ours"),
        ("CREATE TRIGGER more AFTER INSERT ON runs BEGIN SELECT 1; END", "more is not ours"),
    ],
)
async def test_a_schema_that_is_not_what_it_says_is_refused(path: Path, host: MovableHost, statement: str, complaint: str) -> None:
    await opened(path, host)
    altered(path, statement)

    with pytest.raises(StoreSchemaError, match=complaint):
        await opened(path, host)


async def test_a_migration_that_was_interrupted_is_told_of(path: Path, host: MovableHost) -> None:
    altered(path, f"PRAGMA application_id = {APPLICATION_ID}", *TABLES[:5])

    with pytest.raises(StoreSchemaError, match="a migration was interrupted"):
        await opened(path, host)


async def test_a_migration_that_crashes_leaves_nothing_behind(path: Path, host: MovableHost) -> None:
    crashes = 0

    def crash(name: str) -> None:
        nonlocal crashes
        if name == "schema.migrate":
            crashes += 1
            if crashes == 5:
                raise KeyboardInterrupt

    host.at_point = crash
    migrating = session(path, host)
    with pytest.raises(KeyboardInterrupt):
        prepare(migrating)
    migrating.close()
    host.at_point = None

    await opened(path, host)


async def test_tables_of_a_transactional_steps_own_are_welcome(path: Path, host: MovableHost) -> None:
    await opened(path, host)
    altered(path, "CREATE TABLE accounts (id INTEGER PRIMARY KEY)", "CREATE INDEX accounts_by ON accounts (id)")

    await opened(path, host)


async def test_two_migrators_at_once_make_one_schema(path: Path, host: MovableHost) -> None:
    loop = asyncio.get_running_loop()

    def migrating() -> str:
        one = session(path, host)
        prepare(one)
        incarnation: str = one.value("test", "SELECT value FROM meta WHERE name = 'incarnation'")
        one.close()
        return incarnation

    incarnations = await asyncio.gather(*(loop.run_in_executor(None, migrating) for _ in range(4)))

    assert len(set(incarnations)) == 1


async def test_a_file_of_the_schema_before_is_migrated_and_keeps_what_it_has(path: Path, host: MovableHost) -> None:
    altered(path, *TABLES, "INSERT INTO meta VALUES ('incarnation', 'of before')", f"PRAGMA application_id = {APPLICATION_ID}")
    altered(path, "PRAGMA user_version = 1")
    checking = session(path, host)
    assert check(checking) == f"schema 1 would be migrated to {VERSION}"
    checking.close()

    await opened(path, host)

    checking = session(path, host)
    assert check(checking) == f"schema {VERSION} is up to date"
    assert checking.value("test", "SELECT value FROM meta") == "of before"
    checking.close()


async def test_attempts_of_the_schema_before_are_kept_without_a_name_and_get_one_as_they_are_written(path: Path, host: MovableHost) -> None:
    made = [statement for migration in MIGRATIONS[:3] for statement in migration]
    altered(path, *made, "INSERT INTO meta VALUES ('incarnation', 'of before')", f"PRAGMA application_id = {APPLICATION_ID}")
    altered(path, "PRAGMA user_version = 3", "INSERT INTO attempts VALUES (1, 4, 'aa', 2, 1, 1, 9, x'62', x'63')")
    store = open_store(f"sqlite:///{path}", host)
    await store.open()

    record = await claimed(store, host)
    before = AttemptRow(4, "aa", 2, 1, 1, 9, b"b", b"c")
    assert list(record.attempts) == [before]
    named = AttemptRow(4, "aa", 3, 2, 1, 9, b"b", b"c", "charge")
    await store.apply([advance(record, attempts=[named])])
    record = await again(store, record)
    assert list(record.attempts) == [named]

    # As a worker of schema 3 that still runs does it: it names no columns.
    altered(path, "INSERT OR REPLACE INTO attempts VALUES (1, 4, 'aa', 4, 3, 1, 9, x'62', x'63')")
    record = await again(store, record)
    assert list(record.attempts) == [AttemptRow(4, "aa", 4, 3, 1, 9, b"b", b"c", "charge")]
    await store.close()


async def test_no_name_outlives_its_attempt_whoever_deletes_it(path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{path}", host)
    await store.open()
    record = await claimed(store, host)
    await store.apply([advance(record, attempts=[AttemptRow(seq, "aa", 1, 1, 0, 9, b"b", name="charge") for seq in (1, 2, 3)])])
    await store.apply([advance(await again(store, record), entry(0), settled=[1])])
    assert await names(path, host) == [2, 3]
    altered(path, "DELETE FROM attempts WHERE seq = 2")  # by a worker of schema 3
    assert await names(path, host) == [3]

    await store.apply([succeed(await again(store, record), entry(1))])
    assert await names(path, host) == []
    await store.close()


async def names(path: Path, host: MovableHost) -> list[int]:
    looking = session(path, host)
    seqs = [seq for (seq,) in looking.run("test", "SELECT seq FROM attempt_names ORDER BY seq")]
    looking.close()
    return seqs


async def test_checking_says_what_would_be_done_and_does_nothing(path: Path, host: MovableHost) -> None:
    path.touch()
    checking = session(path, host)
    assert check(checking) == f"schema 0 would be migrated to {VERSION}"
    checking.close()
    assert path.stat().st_size == 0
    await opened(path, host)
    checking = session(path, host)
    assert check(checking) == f"schema {VERSION} is up to date"
    checking.close()


def test_urls_name_places(host_of_none: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert host_of_none("sqlite:///data/store.db").path == str(tmp_path / "data" / "store.db")
    assert host_of_none("sqlite:////srv/store.db").path == "/srv/store.db"
    assert host_of_none(None).path == str(tmp_path / "romulus.db")
    assert host_of_none("sqlite://").memory


@pytest.fixture
async def host_of_none(host: MovableHost) -> Callable[..., Place]:
    def place(url: str | None) -> Place:
        found: Place = open_store(url, host)._place  # type: ignore[attr-defined]
        return found

    return place


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://localhost/x", "is not a store URL"),
        ("romulus.db", "is not a store URL"),
        ("sqlite:romulus.db", "is not a store URL"),
        ("sqlite://romulus.db", "is not a store URL"),
        ("sqlite:///", "is not a store URL"),
        ("sqlite:///x.db?mode=ro", "is not a store URL"),
        ("", "is not a store URL"),
    ],
)
async def test_other_urls_are_refused_with_the_forms_there_are(host: MovableHost, url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{complaint}.*sqlite:///relative/path.db"):
        open_store(url, host)


async def test_stores_in_memory_are_apart(host: MovableHost) -> None:
    first, second = open_store("sqlite://", host), open_store("sqlite://", host)
    await first.open()
    await second.open()
    await start(first, "r1")

    assert await second.run("default", "r1") is None
    await first.close()
    await second.close()
