"""A lease's connection is used by two threads: the one that renews it and the watchdog's."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from romulus.core.machine import Change, RunStatus
from romulus.core.record import HoldKind
from romulus.core.transition import Verdict
from romulus.store import open_store
from tests.store.kit import MovableHost, advance, again, claim, entry, register, start


async def test_a_renewal_while_a_run_is_held_from_another_thread_waits_for_it(tmp_path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    lease = await register(store, host)
    await start(store, "r1")
    (record,) = (await claim(store)).records
    renewed: list[bool] = []
    other = threading.Thread(target=lambda: renewed.append(lease.renew()))

    def meanwhile(name: str) -> None:
        if name == "apply.leave.done":
            host.at_point = None
            other.start()
            other.join(0.2)  # it waits for the lock by then, or has done its harm

    host.at_point = meanwhile

    held = advance(record, entry(0), change=Change.HOLD, status=RunStatus.HELD, hold=(HoldKind.HUNG, "stuck"))
    assert lease.apply(held) is Verdict.APPLIED
    other.join()

    assert renewed == [True]
    assert (await again(store, record)).run.status is RunStatus.HELD
    assert len(await store.history(record.run.generation_key, 0, 10)) == 1
    lease.close()
    await store.close()


async def test_a_renewal_holds_up_no_other_writer_while_its_thread_waits_for_the_interpreter(tmp_path: Path, host: MovableHost) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}", host)
    await store.open()
    lease = await register(store, host)
    wrote: list[str] = []

    def meanwhile(name: str) -> None:
        if name == "lease.renew.done":
            with closing(sqlite3.connect(tmp_path / "store.db", timeout=0)) as other:
                other.execute("BEGIN IMMEDIATE")
                wrote.append(name)

    host.at_point = meanwhile

    assert lease.renew()
    assert wrote == ["lease.renew.done"]
    lease.close()
    await store.close()
