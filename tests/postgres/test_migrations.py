"""Migrations: one migrator, a verified schema, releases side by side (RB-58), and clear words where it cannot be."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator

import pytest

from romulus.core.errors import ConfigurationError, StoreSchemaError
from romulus.core.record import AttemptRow
from romulus.core.transition import Verdict
from romulus.store.postgres import migrate, place_of, schema
from romulus.store.postgres.pool import Pool
from tests.cli.terminal import romulus_here
from tests.postgres.kit import Died, blocked, dies_at, opened
from tests.postgres.server import Database
from tests.store.kit import MovableHost, advance, again, claim, claimed, entry, register, start

NEWER = schema.VERSION + 1
ADDED = "ALTER TABLE romulus.runs ADD COLUMN added_later text NOT NULL DEFAULT 'x'"
CATALOGUE = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns "
    "WHERE table_schema = 'romulus' ORDER BY 1, 2"
)
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'romulus' ORDER BY 1"


@pytest.fixture
def own(own_database: Database) -> Database:
    return own_database


@pytest.fixture
def stranger(own: Database) -> Iterator[str]:
    """The URL of a role without any rights."""
    own.execute(f"CREATE ROLE stranger_{own.name} LOGIN")
    yield own.url.replace("postgres@", f"stranger_{own.name}@")
    own.execute(f"DROP OWNED BY stranger_{own.name}; DROP ROLE stranger_{own.name}")


async def test_of_two_migrators_at_once_one_migrates_and_both_can_work(own: Database) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(open_and_close(own.url))

    assert own.execute("SELECT name, count(*) FROM romulus.meta GROUP BY name ORDER BY name") == [
        ("compatible", 1), ("incarnation", 1), ("version", 1),
    ]  # fmt: skip


async def test_the_plain_sql_makes_the_same_schema(own: Database, database: Database) -> None:
    """The test database is made from the plain SQL, as an administrator would apply it."""
    await open_and_close(own.url)

    for sql in (CATALOGUE, INDEXES):
        assert own.execute(sql) == database.execute(sql)


async def test_what_is_expected_is_all_that_is_made(own: Database) -> None:
    await open_and_close(own.url)

    there = {f"{table}.{column}" for table, column, *_ in own.execute(CATALOGUE)}
    assert there == set(migrate.expected_columns())
    sequences = own.execute("SELECT sequencename FROM pg_sequences WHERE schemaname = 'romulus' AND sequencename NOT LIKE '%_key_seq'")
    functions = own.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'romulus'::regnamespace")
    made = {("sequence", name) for (name,) in sequences} | {("function", name) for (name,) in functions}
    assert made == migrate.expected_called()


async def test_check_says_what_would_be_done(own: Database) -> None:
    host = MovableHost()
    pool = Pool(place_of(own.url), host, 1)
    assert await migrate.check(pool) == "the schema does not exist yet and would be made"
    await open_and_close(own.url)
    assert await migrate.check(pool) == f"schema {schema.VERSION} is up to date"
    await pool.close()
    host.close()


def test_the_command_prints_the_sql_that_a_database_lacks_and_shows_no_password(own: Database) -> None:
    store = ("--store", own.url.replace("postgres@", "postgres:secret@"))
    assert romulus_here("migrate", "--check", *store).code == 1
    asked = romulus_here("migrate", "--sql", *store)
    assert (asked.code, romulus_here("migrate", "--check", *store).code) == (0, 1)

    own.execute(asked.out)  # as an administrator would

    assert romulus_here("migrate", "--check", *store).code == 0
    assert re.fullmatch(r"-- postgresql://postgres@.*: schema \d+ is up to date\n", romulus_here("migrate", "--sql", *store).out)
    done = romulus_here("migrate", "--json", *store)
    assert done.json["store"] == own.url
    assert "secret" not in asked.out + done.out + done.err


@pytest.mark.parametrize(
    "harm",
    ["DELETE FROM romulus.meta", "UPDATE romulus.meta SET value = 'one'", "UPDATE romulus.meta SET value = '0' WHERE name = 'version'"],
)
async def test_a_schema_that_does_not_say_its_version_is_refused_and_left_as_it_is(own: Database, harm: str) -> None:
    await open_and_close(own.url)
    own.execute(harm)
    before = own.execute("SELECT * FROM romulus.meta")

    with pytest.raises(StoreSchemaError, match="says no version: restore a backup"):
        await open_and_close(own.url)
    assert own.execute("SELECT * FROM romulus.meta") == before


async def test_a_worker_of_this_release_works_on_a_newer_schema_that_says_it_may(own: Database) -> None:
    await open_and_close(own.url)
    own.execute(ADDED)
    own.execute(f"UPDATE romulus.meta SET value = '{NEWER}' WHERE name = 'version'")
    host = MovableHost()

    async with opened(own.url, host) as store:
        (await register(store, host)).close()
        await start(store, "r1")
        (record,) = (await claim(store)).records
        assert await store.apply([advance(record, entry(0))]) == [Verdict.APPLIED]
    host.close()


async def test_a_worker_goes_on_while_the_schema_is_migrated_under_it(own: Database) -> None:
    host = MovableHost()
    async with opened(own.url, host) as store:
        (await register(store, host)).close()
        await start(store, "r1", "r2")
        (record, other) = (await claim(store)).records
        assert await store.apply([advance(record, entry(0))]) == [Verdict.APPLIED]
        own.execute(ADDED)
        own.execute(f"UPDATE romulus.meta SET value = '{NEWER}' WHERE name = 'version'")

        assert await store.apply([advance(other, entry(0))]) == [Verdict.APPLIED]
        await start(store, "r3")
        assert [r.run.id for r in (await claim(store)).records] == ["r3"]
    host.close()


async def test_a_migration_that_has_to_wait_for_somebody_holds_up_no_worker(own: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for a table has everybody who comes later wait behind it."""
    host = MovableHost()
    async with opened(own.url, host) as store:
        (await register(store, host)).close()
        await start(store, "r1", "r2")
        (record, other) = (await claim(store)).records
        for name, value in {"MIGRATIONS": (*migrate.MIGRATIONS, [ADDED]), "VERSION": schema.VERSION + 1, "PAUSE_S": 0.1}.items():
            monkeypatch.setattr(migrate, name, value)
        with own.server.connect(own.name) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM romulus.runs")
            migrating = asyncio.ensure_future(open_and_close(own.url))
            for transition in (advance(record, entry(0)), advance(other, entry(0))):
                await blocked(own, 1)
                assert await store.apply([transition]) == [Verdict.APPLIED]
            assert not migrating.done()
            reader.execute("COMMIT")
        await migrating
    host.close()
    assert own.execute("SELECT value FROM romulus.meta WHERE name = 'version'") == [(str(NEWER),)]


@pytest.mark.parametrize("point", ["schema.migrate.done", "schema.mark"])
async def test_of_a_migration_whose_process_dies_nothing_is_left_and_the_next_one_does_it_all(own: Database, point: str) -> None:
    host = MovableHost()
    host.at_point = dies_at(point)
    with pytest.raises(Died):
        async with opened(own.url, host):
            pass
    assert own.execute(CATALOGUE) == []

    await open_and_close(own.url)
    assert own.execute("SELECT count(*) FROM romulus.meta") == [(3,)]
    host.close()


async def test_a_migration_that_fails_is_undone_as_a_whole(own: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the version that the database says is behind what is there."""
    await open_and_close(own.url)
    own.execute(ADDED)
    before = own.execute(CATALOGUE)
    for name, value in {"MIGRATIONS": (*migrate.MIGRATIONS, ["CREATE TABLE romulus.more (key bigint)", ADDED]), "VERSION": NEWER}.items():
        monkeypatch.setattr(migrate, name, value)

    with pytest.raises(StoreSchemaError, match="the migration failed and was undone"):
        await open_and_close(own.url)
    assert own.execute(CATALOGUE) == before
    assert own.execute("SELECT value FROM romulus.meta WHERE name = 'version'") == [(str(NEWER - 1),)]


async def test_attempts_of_the_schema_before_are_kept_without_a_name_and_get_one_as_they_are_written(own: Database) -> None:
    for migration in migrate.MIGRATIONS[:3]:
        for statement in migration:
            own.execute(statement)
    own.execute("INSERT INTO romulus.meta VALUES ('version', '3'), ('compatible', '1'), ('incarnation', 'x')")
    of_schema_3 = (
        "INSERT INTO romulus.attempts (run, generation, seq, digest, number, failures, losses, due, error, heartbeat) "
        "VALUES (1, 1, 4, 'aa', 2, 1, 1, 9, 'b', 'c') ON CONFLICT (run, generation, seq) DO UPDATE SET number = excluded.number"
    )
    own.execute(of_schema_3)
    host = MovableHost()
    async with opened(own.url, host) as store:
        record = await claimed(store, host)
        assert list(record.attempts) == [AttemptRow(4, "aa", 2, 1, 1, 9, b"b", b"c")]
        named = AttemptRow(4, "aa", 3, 2, 1, 9, b"b", b"c", "charge")
        await store.apply([advance(record, attempts=[named])])
        record = await again(store, record)
        assert list(record.attempts) == [named]

        own.execute(of_schema_3)  # by a worker that still runs and knows of no names
        (found,) = (await again(store, record)).attempts
        assert (found.number, found.name) == (2, "charge")
    host.close()


async def test_a_worker_claims_nothing_more_once_the_schema_needs_a_newer_release(own: Database, caplog: pytest.LogCaptureFixture) -> None:
    host = MovableHost()
    async with opened(own.url, host) as store:
        (await register(store, host)).close()
        await start(store, "r1", "r2")
        (record,) = (await claim(store, limit=1)).records
        own.execute(f"UPDATE romulus.meta SET value = '{NEWER}'")

        assert [list((await claim(store)).records) for _ in range(3)] == [[], [], []]
        assert await store.apply([advance(record, entry(0))]) == [Verdict.APPLIED]
    host.close()
    assert [(r.levelno, "upgrade it" in r.getMessage()) for r in caplog.records] == [(logging.ERROR, True)]


async def test_a_schema_that_needs_a_newer_release_is_refused(own: Database) -> None:
    await open_and_close(own.url)
    own.execute("UPDATE romulus.meta SET value = '7'")

    with pytest.raises(StoreSchemaError, match="needs a release for schema 7 or newer"):
        await open_and_close(own.url)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("ALTER TABLE romulus.runs DROP COLUMN armed", "runs.armed is missing"),
        ("ALTER TABLE romulus.waits ALTER COLUMN deadline TYPE integer", "waits.deadline is integer, not bigint"),
        ("DROP INDEX romulus.runs_due", "index runs_due is missing or invalid"),
        ("DROP TABLE romulus.wakes", "wakes.key is missing"),
        ("DROP SEQUENCE romulus.arrivals", "sequence arrivals is missing"),
    ],
)
async def test_a_schema_changed_by_hand_is_refused_naming_what(own: Database, harm: str, words: str) -> None:
    await open_and_close(own.url)
    own.execute(harm)

    with pytest.raises(StoreSchemaError, match=words):
        await open_and_close(own.url)


async def test_a_role_that_may_not_make_the_schema_is_told_what_to_do(stranger: str) -> None:
    with pytest.raises(ConfigurationError, match="may not make, change or use the schema romulus"):
        await open_and_close(stranger)


async def test_a_role_that_may_not_use_the_schema_is_told_what_to_do(own: Database, stranger: str) -> None:
    await open_and_close(own.url)
    with pytest.raises(ConfigurationError, match="grant this one USAGE"):
        await open_and_close(stranger)

    role = f"stranger_{own.name}"
    own.execute(f"GRANT USAGE ON SCHEMA romulus TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA romulus TO {role}")
    with pytest.raises(ConfigurationError, match=r"may not read and write romulus\.attempts, "):
        await open_and_close(stranger)

    own.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA romulus TO {role}; GRANT USAGE ON SEQUENCE romulus.arrivals TO {role}")
    with pytest.raises(ConfigurationError, match=r"may not use the sequence romulus\.run_keys: grant it .*USAGE on sequences"):
        await open_and_close(stranger)
    checked = await asyncio.to_thread(romulus_here, "migrate", "--check", "--store", stranger)
    assert (checked.code, "romulus.run_keys" in checked.err) == (2, True)
    found = await asyncio.to_thread(romulus_here, "doctor", "--json", "--store", stranger)
    assert found.code == 1
    assert "use the sequence romulus.run_keys" in next(each["detail"] for each in found.json["findings"] if each["state"] == "failed")

    own.execute(f"GRANT USAGE ON SEQUENCE romulus.run_keys TO {role}; REVOKE EXECUTE ON FUNCTION romulus.xid() FROM PUBLIC")
    with pytest.raises(ConfigurationError, match=r"may not use the function romulus\.xid"):
        await open_and_close(stranger)

    own.execute(f"GRANT EXECUTE ON FUNCTION romulus.xid() TO {role}")
    await open_and_close(stranger)


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ("CREATE TABLE romulus.runs (a integer)", "runs"),
        (
            "CREATE FUNCTION romulus.clock() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'; CREATE SEQUENCE romulus.arrivals",
            "arrivals, clock",
        ),
    ],
)
def test_a_schema_of_that_name_that_is_half_restored_or_somebody_elses_is_refused_and_left_as_it_is(
    own: Database, found: str, named: str
) -> None:
    own.execute(f"CREATE SCHEMA romulus; {found}")

    for command in (["migrate", "--check"], ["migrate"], ["migrate", "--sql"], ["restore", "--yes"]):
        said = romulus_here(*command, "--store", own.url)
        assert said.code == 1
        assert f"has a schema romulus with {named} and without the table meta" in " ".join(said.err.split())
    doctor = romulus_here("doctor", "--json", "--store", own.url)
    assert doctor.code == 1
    assert [each["check"] for each in doctor.json["findings"] if each["state"] == "failed"] == ["store"]
    assert own.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'romulus'::regnamespace AND relname = 'meta'") == [(0,)]


async def test_a_schema_that_an_administrator_has_made_for_it_is_filled_beside_what_else_is_there(own: Database) -> None:
    own.execute("CREATE SCHEMA romulus; CREATE TABLE romulus.notes (a integer)")
    await open_and_close(own.url)


@pytest.mark.parametrize("more", [[], ["--settled"], ["--release"]])
def test_a_database_without_a_schema_is_no_backup_and_stays_as_it_is(own: Database, more: list[str]) -> None:
    said = romulus_here("restore", "--yes", *more, "--store", own.url.replace("postgres@", "postgres:secret@"))

    assert said.code == 2
    assert "has no schema romulus: there is nothing to restore in this database; check the URL" in " ".join(said.err.split())
    assert "secret" not in said.err
    assert own.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'romulus'") == [(0,)]


async def open_and_close(url: str) -> None:
    async with opened(url):
        pass
