"""Behind PgBouncer in transaction mode: nothing is left in a session, LISTEN is found out and polled for (RB-41)."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import romulus
from romulus.core.errors import ConfigurationError, StoreUnavailable
from romulus.core.transition import Verdict
from romulus.store.postgres import PostgresStore, listening
from tests.postgres.kit import opened, settled, until
from tests.postgres.server import USER, Database, free_port
from tests.postgres.test_crashes import story
from tests.postgres.test_listening import hearing
from tests.postgres.test_outages import books, said, working
from tests.store.kit import RUNNING, SECOND, MovableHost, advance, entry, event, new_run, register, request, worker

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed: apt-get install pgbouncer")


@romulus.step
async def add(a: int, b: int) -> int:
    return a + b


@romulus.workflow
async def adds(n: int) -> int:
    return await add(await add(n, 1), 1)


CONFIGURATION = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 5
max_client_conn = {clients}
"""


@contextmanager
def pooler(server_port: int, mode: str, clients: int = 100) -> Iterator[int]:
    """Run PgBouncer before a server, for so many clients at once, and give its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="romulus-pgbouncer-") as directory:
        Path(directory).chmod(0o755)
        file, log = Path(directory) / "pgbouncer.ini", Path(directory) / "log"
        file.write_text(CONFIGURATION.format(server=server_port, port=port, mode=mode, clients=clients))
        with log.open("wb") as output:
            process = subprocess.Popen([str(PGBOUNCER), str(file)], stdout=output, stderr=output, user=USER)
        try:
            answers(port)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def answers(port: int) -> None:
    """Wait until somebody listens on *port*."""
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise AssertionError("PgBouncer does not answer")


@pytest.fixture
def pooled_url(database: Database) -> Iterator[str]:
    """The database's URL through a pooler in transaction mode."""
    with pooler(database.server.port, "transaction") as port:
        yield database.server.url(database.name, port)


async def test_a_pooler_is_found_out_and_every_statement_works_through_it(pooled_url: str, host: MovableHost) -> None:
    async with opened(pooled_url, host) as store:
        assert store._pool.pooled
        await story(store, host)
        run = await store.run("default", "r1")
        assert run is not None
        assert run.status == "succeeded"


async def test_what_a_session_would_keep_is_pinned_in_each_transaction(pooled_url: str, database: Database, host: MovableHost) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'serializable'")
    pinned = {
        "transaction_isolation": "read committed", "synchronous_commit": "on", "lock_timeout": "1500ms", "enable_seqscan": "off",
        "enable_bitmapscan": "off", "idle_in_transaction_session_timeout": "10s",
    }  # fmt: skip
    async with opened(pooled_url, host) as store:
        for name, value in pinned.items():
            assert await store._pool.rows("show", "SELECT current_setting($1)", name) == [(value,)]
    database.execute(f"ALTER DATABASE {database.name} RESET ALL")


async def test_a_short_lease_shortens_the_waits_for_locks_through_a_pooler(pooled_url: str, host: MovableHost) -> None:
    async with opened(pooled_url, host) as store:
        (await store.register(worker(host, "w1"), 2 * SECOND)).close()
        assert await store._pool.rows("show", "SELECT current_setting('lock_timeout')") == [("200ms",)]


async def test_calls_at_once_share_the_poolers_few_sessions(pooled_url: str, host: MovableHost) -> None:
    async with opened(pooled_url, host) as one, opened(pooled_url, host) as two:
        await asyncio.gather(*(store.start([new_run(f"r{n}")]) for n in range(50) for store in (one, two)))
        await asyncio.gather(*(store.run("default", f"r{n}") for n in range(50) for store in (one, two)))
        await asyncio.gather(*(store.send([event(f"e{n}")]) for n in range(20) for store in (one, two)))
        await asyncio.gather(settled(one), settled(two))
        (await register(one, host, "w1")).close()
        records = [r for s in (one, two) for r in (await s.claim(request(limit=30), RUNNING)).records]
        assert await two.apply([advance(r, entry(0)) for r in records]) == [Verdict.APPLIED] * 50


async def test_a_lease_is_renewed_through_a_pooler(pooled_url: str, host: MovableHost) -> None:
    async with opened(pooled_url, host) as store:
        lease = await register(store, host, "w1")
        assert lease.renew()
        await store.mark_dead("w1")
        assert not lease.renew()
        lease.close()


async def test_listen_through_a_pooler_is_given_up_with_one_warning_and_polled_for(
    pooled_url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {"POLL": 50_000, "PROBE_S": 0.3, "RETRY_POOLED": 100_000}.items():
        monkeypatch.setattr(listening, name, value)
    async with opened(pooled_url) as pooled, hearing(pooled) as hearer:
        await until(lambda: len(caplog.records) > 0)
        before = hearer.heard
        await until(lambda: hearer.heard > before + 20)
        assert not pooled.listening
    (warning,) = caplog.records
    assert "swallows LISTEN" in warning.getMessage()


async def test_a_run_is_worked_at_through_a_pooler(pooled_url: str) -> None:
    app = romulus.App(pooled_url, workflows=[adds])
    async with app.worker(concurrency=10), app.client() as client:
        assert await (await client.start(adds, 1)).result(timeout=20) == 3


async def test_a_pooler_in_session_mode_is_heard_through(database: Database, host: MovableHost) -> None:
    with pooler(database.server.port, "session") as port:
        async with opened(f"{database.server.url(database.name, port)}?pooler=session", host) as store, hearing(store):
            assert not store._pool.pooled
            await until(lambda: store.listening)


async def test_a_pooler_in_statement_mode_is_told_of_with_the_remedy(database: Database) -> None:
    with (
        pooler(database.server.port, "statement") as port,
        pytest.raises(ConfigurationError, match="a pooler has to be in transaction or session mode"),
    ):
        async with opened(database.server.url(database.name, port)):
            pass


@pytest.mark.parametrize("said", ["none", "session"])
async def test_a_pooler_that_is_in_another_mode_than_the_url_says_is_told_of_with_the_remedy(pooled_url: str, said: str) -> None:
    """What one session has prepared is asked of another, once somebody else has that session."""
    words = "a pooler in transaction mode stands between: leave `pooler=` out"
    async with opened(f"{pooled_url}?pooler={said}") as store:
        await store.run("default", "r1")
        other: Any = await asyncpg.connect(pooled_url, statement_cache_size=0)
        await other.execute("BEGIN")  # takes the session that was given back last
        with pytest.raises((ConfigurationError, StoreUnavailable), match=words):
            await store.run("default", "r1")
        await other.close()


async def test_a_pooler_that_has_no_room_for_a_while_is_waited_for(new_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it refuses has one state: this is told from what it never takes by its words."""
    with pooler(new_database.server.port, "transaction", clients=20) as port:
        url = new_database.server.url(new_database.name, port)
        async with romulus.AsyncClient(new_database.url) as client, working(url):
            await until(lambda: said(caplog, "swallows LISTEN") == 1)  # that connection is given up
            others = await filled(url)
            with pytest.raises(StoreUnavailable, match="the pooler that stands between lets nobody in now.*max_client_conn"):
                async with opened(url):
                    pass
            handle = await client.start(books)  # whose step needs one more connection
            await until(lambda: said(caplog, "the store cannot be reached") == 1)
            for other in others:
                other.terminate()
            assert await handle.result(timeout=20) == 1


async def filled(url: str) -> list[Any]:
    """Return connections that leave no room for another, that of one just closed neither."""
    found: list[Any] = []
    refused = 0
    while refused < 10:
        try:
            found.append(await asyncpg.connect(url, statement_cache_size=0))
        except asyncpg.PostgresError:
            refused += 1
            await asyncio.sleep(0.01)
    return found
