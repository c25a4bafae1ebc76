"""A lease is renewed whatever happens to its connection, and whatever the watchdog writes beside it."""

from __future__ import annotations

import asyncio

import pytest

from romulus.core.errors import StoreUnavailable
from romulus.core.machine import Change, RunStatus
from romulus.core.record import HoldKind
from romulus.core.transition import Verdict
from romulus.store.contract import Lease
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import blocked, opened
from tests.postgres.proxy import proxied
from tests.postgres.server import Database
from tests.store.kit import SECOND, MovableHost, advance, again, claim, entry, register, start, worker


async def test_a_lease_whose_connection_fell_silent_is_renewed_on_another_in_time(database: Database, host: MovableHost) -> None:
    """The silent one is never asked again: a renewal that waited for it would wait until TCP gives up."""
    async with proxied(database.server.port) as proxy, opened(database.server.url(database.name, proxy.port) + "?pooler=none", host) as far:
        lease = await far.register(worker(host, "w1"), 2 * SECOND)
        assert await asyncio.to_thread(lease.renew)
        proxy.swallow_all()

        with pytest.raises(StoreUnavailable, match=r"not renewed within 0\.5 s"):
            await asyncio.to_thread(lease.renew)
        assert lease.remaining() > SECOND
        await renewed(lease)
        await asyncio.to_thread(lease.close)


async def renewed(lease: Lease) -> None:
    """Renew by one more try or, on a loaded machine, a few."""
    for left in (2, 1, 0):
        try:
            assert await asyncio.to_thread(lease.renew)
        except StoreUnavailable:
            assert left
        else:
            return


async def test_a_renewal_does_not_wait_for_what_the_watchdog_writes(store: PostgresStore, database: Database, host: MovableHost) -> None:
    lease = await register(store, host)
    await start(store, "r1")
    (record,) = (await claim(store)).records
    held = advance(record, entry(0), change=Change.HOLD, status=RunStatus.HELD, hold=(HoldKind.HUNG, "stuck"))
    with database.server.connect(database.name) as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM romulus.runs FOR UPDATE")
        holding = asyncio.ensure_future(asyncio.to_thread(lease.apply, held))
        await blocked(database, 1)
        assert await asyncio.to_thread(lease.renew)
        assert not holding.done()
        other.execute("COMMIT")

    assert await holding is Verdict.APPLIED
    assert (await again(store, record)).run.status is RunStatus.HELD
    await asyncio.to_thread(lease.close)


async def test_a_short_lease_shortens_the_waits_for_locks_of_connections_that_are_open(store: PostgresStore, host: MovableHost) -> None:
    async def waits() -> set[str]:
        shown = await asyncio.gather(*(store._pool.rows("show", "SELECT current_setting('lock_timeout')") for _ in range(6)))
        return {str(setting) for ((setting,),) in shown}

    assert await waits() == {"1500ms"}
    (await store.register(worker(host, "w1"), 2 * SECOND)).close()
    assert await waits() == {"200ms"}


async def test_a_statement_that_was_cancelled_makes_nobody_else_wait(store: PostgresStore, database: Database, host: MovableHost) -> None:
    async with proxied(database.server.port) as proxy, opened(database.server.url(database.name, proxy.port) + "?pooler=none", host) as far:
        await far.now()
        proxy.swallow_all()
        reading = asyncio.ensure_future(far.history(1, 0, 1))
        await asyncio.sleep(0)  # it is given to the driver
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

        async with asyncio.timeout(5):
            assert await far.history(1, 0, 1) == []
