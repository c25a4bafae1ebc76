"""A worker of each released schema, of which a tape is kept, goes on while the schema is migrated under it and beside a new one (RB-58)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from romulus.core.transition import Verdict
from romulus.store.postgres import migrate
from romulus.store.postgres.schema import COMPATIBLE, VERSION
from tests.postgres.kit import opened
from tests.postgres.released.life import record
from tests.postgres.released.tape import Player, PostgresTape, path_of
from tests.postgres.server import Database
from tests.processes.next_release import ADDS
from tests.store.kit import LEASE, RUNNING, advance, entry, request, worker
from tests.store.life import OLD, START, StillHost, take_over

NEW = "new"
RELEASED = range(COMPATIBLE, VERSION + 1)  # a schema without its tape fails here: see released/life.py


@pytest.fixture
async def host() -> AsyncIterator[StillHost]:
    host = StillHost()
    yield host
    host.close()


@pytest.mark.parametrize("schema", RELEASED)
async def test_a_worker_of_a_released_schema_goes_on_while_it_is_migrated_and_beside_a_new_one(
    own_database: Database, host: StillHost, monkeypatch: pytest.MonkeyPatch, schema: int
) -> None:
    tape = PostgresTape.load(path_of(schema))
    make(own_database, schema)
    async with Player(own_database.url, stranger=NEW) as old:
        await old.play(tape.until("half"))
        monkeypatch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS, ADDS))
        monkeypatch.setattr(migrate, "VERSION", VERSION + 1)
        async with opened(own_database.url, host) as store:
            (await store.register(worker(host, NEW, namespace="other"), LEASE)).close()
            (mine,) = (await store.claim(replace(request(NEW), namespace="other"), RUNNING)).records
            assert await store.apply([advance(mine, entry(0))]) == [Verdict.APPLIED]
            await old.play(tape)
    async with opened(own_database.url, host) as store:
        assert await take_over(store, OLD, NEW) == {"left", "untouched", "held"}

    assert own_database.execute("SELECT DISTINCT status FROM romulus.runs WHERE namespace = 'default' ORDER BY 1") == [
        ("cancelled",), ("succeeded",),
    ]  # fmt: skip
    gaps = "SELECT run FROM romulus.journal GROUP BY run, generation HAVING max(position) + 1 <> count(*)"
    assert own_database.execute(gaps) == []


async def test_the_tape_is_played_to_its_end_and_a_wrong_answer_stops_it(own_database: Database) -> None:
    made = await record(own_database)
    tape = PostgresTape(made.entries[:3])
    make(own_database, VERSION)
    async with Player(own_database.url) as old:
        await old.play(tape)
    assert len(made.entries) > 150

    made.entries[2][3] = [["another"]]
    make(own_database, VERSION)
    async with Player(own_database.url) as old:
        with pytest.raises(AssertionError):
            await old.play(tape)


def make(database: Database, schema: int) -> None:
    """Make a schema as its release did, its clock standing still."""
    database.execute("DROP SCHEMA IF EXISTS romulus CASCADE")
    for migration in migrate.MIGRATIONS[:schema]:
        for statement in migration:
            database.execute(statement)
    database.execute(f"INSERT INTO romulus.meta VALUES ('version', '{schema}'), ('compatible', '1'), ('incarnation', 'x')")
    database.freeze(START)
