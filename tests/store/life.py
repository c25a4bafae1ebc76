"""What a worker does in its life, once each: steps, retries, events, children, operations, pools, changes, generations, a takeover.

What it does to the store of a released schema is recorded, and done again on every later schema (RB-58).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from romulus.core.machine import Change, RunStatus
from romulus.core.operations import NewIntent, OperationMark, OperationState, Protocol, Report, ReportKind, decide
from romulus.core.pools import NewPoolAttempt, PoolBeat, PoolEnd, PoolReport
from romulus.core.ports import ProcessIdentity
from romulus.core.record import AttemptRow, HoldKind, Record
from romulus.core.requests import release, request_cancel
from romulus.core.transition import Closing, NewChild, NewGeneration, Verdict
from romulus.store.contract import RunFilter, Store
from tests.store.kit import (
    HELD,
    LEASE,
    PENDING,
    SECOND,
    MovableHost,
    advance,
    again,
    claim,
    close,
    entry,
    event,
    new_run,
    park,
    start,
    succeed,
    wait,
    worker,
)  # fmt: skip

START = 1_800_000_000 * SECOND
OLD = "old"
SERVES = [("order", "1", "3.11:here"), ("item", "1", "3.11:here")]
LOOKED = Protocol(idempotent=False, key_lifetime=None, settle=0, timeout=SECOND, has_lookup=True)
S = OperationState


class StillHost(MovableHost):
    """Time stands still, and the process is nobody's: every recording is alike."""

    def __init__(self) -> None:
        super().__init__()
        self.identity = ProcessIdentity("there", "boot", 1, "begun", "space")

    def wall(self) -> int:
        return START

    def monotonic(self) -> int:
        return 0

    def random_bits(self, bits: int) -> int:
        return 0


async def live(store: Store, host: MovableHost, moment: Callable[[str], None]) -> None:
    """Live the whole life of a worker; half of it lies before the moment "half"."""
    lease = await store.register(worker(host, OLD, operating=[("order", "1")]), LEASE)
    await start(store, "steps", "events", "parent", "operates", "pooled", "cancelled", "continued", "held", "left", "untouched")
    await start(store, "of the next release", namespace="other")  # for its worker, whom this one does not see
    records = {record.run.id: record for record in (await claim(store, OLD, serves=SERVES, limit=9)).records}
    assert len(records) == 9
    await begin(store, records)
    assert await asyncio.to_thread(lease.renew)
    moment("half")
    assert await asyncio.to_thread(lease.renew)
    await end(store, {name: await again(store, record) for name, record in records.items()})
    await look(store)
    await asyncio.to_thread(lease.close)


async def begin(store: Store, records: dict[str, Record]) -> None:
    row = AttemptRow(1, "aa", 1, 1, 0, START, b"boom", name="charge")
    child = NewChild(new_run("parent~1", workflow="item", depth=1), 1, "cancel", False)
    intent = NewIntent(1, "op-1", "write", "d1", b"{}", LOOKED, S.ARMED, START + SECOND)
    attempt = NewPoolAttempt(1, "gpu", "train", "d1", b'{"n":1}', 1, 0, 5 * SECOND, SECOND, b"", 7)
    made = [
        advance(records["steps"], entry(0), attempts=[row], armed='[[1,1,"aa"]]'),
        advance(records["events"], entry(0), opens=[wait(), wait(2, correlation_id="never", deadline=START + SECOND)]),
        advance(records["parent"], children=[child], parent=True),
        advance(records["operates"], intents=[intent], operates=True),
        park(records["pooled"], pools=[attempt], pooled=True, armed="", parent=True),
        advance(records["held"], entry(0), change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "stuck")),
        advance(records["left"], entry(0)),
    ]
    for transition in made[:3]:
        await store.apply([transition])
    await store.apply(made[3:])
    await store.send([event("e1")])
    while await store.match(100):
        pass
    await store.pulse(OLD)
    await store.apply([advance(await again(store, records["operates"]), marks=[OperationMark(1, S.ARMED, S.UNKNOWN, due=1, error=b"?")])])
    for record in (await claim(store, OLD, serves=SERVES[1:])).records:
        await store.apply([succeed(record, entry(0), child=True)])


async def end(store: Store, records: dict[str, Record], owner: str = OLD) -> None:
    await store.apply([succeed(records["steps"], entry(1), settled=[1])])
    (taken,) = [w for w in records["events"].waits if w.deposit is not None]
    assert taken.deposit is not None
    closes = [close(1, Closing.CONSUMED, taken.deposit.event), close(2, Closing.TIMED_OUT)]
    await store.apply([park(records["events"], entry(1, kind="wait"), closes=closes, wake_at=START)])
    await store.pulse(owner)
    await store.apply([succeed(await again(store, records["parent"]), entry(0, kind="child"), parent=True)])
    await store.report([Report("default", "op-1", ReportKind.CALLED_APPLIED, "ada", body=b'"v"')], decide, PENDING)
    settled = await again(store, records["operates"])
    await store.apply([succeed(settled, entry(0, kind="operation"), operates=True, taken=[m.key for m in settled.inbox])])
    await work_in_pool(store, owner)
    await store.change("default", "cancelled", lambda run, _, now: request_cancel(run, "why", now))
    cancelled = await again(store, records["cancelled"])
    await store.apply([advance(cancelled, change=Change.END_CANCELLED, status=RunStatus.CANCELLED, cancel_seq=cancelled.run.cancel_seq)])
    begins = NewGeneration("order", "1", b"{}", b"i" * 16, '[[0,"bb"]]')
    await store.apply([advance(records["continued"], change=Change.CONTINUE, status=PENDING, cancel_seq=0, wake_at=0, begins=begins)])
    await store.change("default", "held", lambda run, _, now: release(run, now))
    assert await store.apply([advance(records["left"], entry(1), fence=1)])  # a refused one is kept as evidence
    for record in (await claim(store, owner, serves=SERVES, limit=3)).records:
        await store.apply([succeed(record, entry(record.run.position), parent=True, pooled=record.pooled)])
    await store.expire_events(SECOND, 10)
    await store.sweep(10, PENDING)


async def work_in_pool(store: Store, owner: str) -> None:
    (row,) = (await store.take_pool(owner, "default", ["gpu"], ["train"], 10, LEASE)).rows
    assert await store.beat_pool([PoolBeat(row.key, row.fence)]) == [True]
    told = PoolReport(row.key, row.fence, row.run, owner, PoolEnd.RETURNED, b'"done"', json.dumps({"attempt": 1}))
    assert await store.report_pool([told]) == [True]


async def look(store: Store) -> None:
    """Read as clients do."""
    for run in (await store.runs(RunFilter("default"), None, 100)).items:
        await store.history(run.generation_key, 0, 100)
        await store.generations(run.key)
        await store.evidence(run.key)
        await store.operations_of(run.generation_key)
    await store.events("default", None, None, 10)
    await store.waits("default", None, 10)
    await store.operations("default", None, None, None, 10)
    await store.workers("default")


async def take_over(store: Store, gone: str, owner: str) -> set[str]:
    """Let *owner* have what *gone* left, end it, and return what that was."""
    await store.mark_dead(gone)
    await store.sweep(10, PENDING)
    records = (await claim(store, owner, serves=SERVES)).records
    assert await store.apply([succeed(r, entry(r.run.position), pooled=r.pooled) for r in records]) == [Verdict.APPLIED] * len(records)
    return {r.run.id for r in records}
