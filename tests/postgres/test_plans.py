"""A look reads few pages whatever the server's statistics say, in a database that has no past: plans depend on what others left in one."""

from __future__ import annotations

import pytest

from romulus.store.postgres import PostgresStore, looking
from romulus.store.postgres.session import OwnSession
from tests.postgres.server import Database
from tests.postgres.test_floors import CLAIMED, pages, session
from tests.store.kit import request, start

__all__ = ["session"]


@pytest.fixture
def database(new_database: Database) -> Database:
    return new_database


async def test_runs_that_came_with_a_dump_of_another_server_are_not_looked_at_each_time(
    session: OwnSession, store: PostgresStore, database: Database
) -> None:
    """They bear numbers that this server will give one day."""
    database.execute("VACUUM ANALYZE romulus.runs")  # statistics of an empty table, as a new one has
    database.execute(CLAIMED)
    database.execute(
        "UPDATE romulus.runs SET queue_at = 1::bigint << 60, wake_at = 1::bigint << 60, queued_by = 1::bigint << 40, "
        "updated_at = created_at"
    )
    database.execute("VACUUM romulus.runs")  # of what the update left, which a dump does not have
    await start(store, "r1")
    seen = await looking.look(session, request(), 10)

    assert await pages(session, lambda s: looking.look(s, request(), 10, seen.queues, seen.lists)) < 100
    again = await looking.look(session, request(), 10, seen.queues, seen.lists)
    assert (again.ready, again.later, again.whole) == (seen.ready, seen.later, False)


async def test_runs_that_were_queued_since_the_statistics_were_made_are_not_looked_at_each_time(
    session: OwnSession, store: PostgresStore, database: Database
) -> None:
    """The planner takes the queues to be empty, and a bitmap of all of one to be as good as its first entry."""
    if int(database.execute("SHOW server_version_num")[0][0]) < 180_000:
        pytest.skip("older servers take runs_due for runs that lost claims, whatever a statement says: that needs indexes of another shape")
    database.execute(CLAIMED)
    database.execute("ANALYZE romulus.runs")
    database.execute("UPDATE romulus.runs SET queue_at = 1::bigint << 60, wake_at = 1::bigint << 60, owner = NULL, queued_by = 1")
    database.execute("VACUUM romulus.runs")
    await start(store, "r1")
    seen = await looking.look(session, request(), 10)

    assert await pages(session, lambda s: looking.look(s, request(), 10, seen.queues, seen.lists)) < 100
    assert await pages(session, lambda s: looking.look(s, request(alone=True), 10, None, seen.lists)) < 100
