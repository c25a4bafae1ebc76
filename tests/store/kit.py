"""What store tests are written with: a host whose clocks can be moved, and short names for the contract's requests."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from romulus.core.machine import Change, RunStatus
from romulus.core.record import Entry, Record, WorkerRow
from romulus.core.transition import CloseWait, Closing, Created, NewEvent, NewRun, NewWait, Transition
from romulus.host.real import RealHost
from romulus.store.contract import ClaimRequest, Claims, Lease, Store

SECOND = 1_000_000
LEASE = 15 * SECOND
PENDING, RUNNING, WAITING, HELD = RunStatus.PENDING, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.HELD
ids = count(1)


class MovableHost(RealHost):
    """The real host, with clocks a test can move and crash points it can listen to."""

    ahead = 0  # µs
    at_point: Any = None  # called with each crash point's name
    moved: Any = None  # called with `ahead` when it changes, for a store that has a clock of its own

    def wall(self) -> int:
        return super().wall() + self.ahead

    def monotonic(self) -> int:
        return super().monotonic() + self.ahead

    def advance(self, by: int) -> None:
        self.ahead += by
        if self.moved is not None:
            self.moved(self.ahead)

    def crash_point(self, name: str) -> None:
        if self.at_point is not None:
            self.at_point(name)


def new_run(run_id: str, **changes: Any) -> NewRun:
    run = NewRun("default", run_id, "order", "1", PENDING, b'{"n":1}', b"i" * 16, '[[0,"aa"]]', wake_at=0)
    return replace(run, **changes)


def worker(host: RealHost, worker_id: str, **changes: Any) -> WorkerRow:
    me = host.identity
    row = WorkerRow(worker_id, "default", "test", me.host, me.boot, me.pid, me.pid_start, me.pid_namespace, "[]", "[]", "[]", 100, 0, 0, 0)
    return replace(row, **changes)


async def register(store: Store, host: RealHost, worker_id: str = "w1", **changes: Any) -> Lease:
    lease = await store.register(worker(host, worker_id, **changes), LEASE)
    return lease


async def start(store: Store, *run_ids: str, **changes: Any) -> list[int]:
    created = await store.start([new_run(run_id, **changes) for run_id in run_ids])
    assert all(isinstance(c, Created) for c in created)
    return [c.key for c in created if isinstance(c, Created)]


def request(owner: str = "w1", **changes: Any) -> ClaimRequest:
    return replace(ClaimRequest(owner, "default", [("order", "1", "3.11:here")], 100), **changes)


async def claim(store: Store, owner: str = "w1", **changes: Any) -> Claims:
    return await store.claim(request(owner, **changes), RUNNING)


async def claimed(store: Store, host: RealHost, run_id: str = "r1", owner: str = "w1") -> Record:
    """Start a run and claim it by a worker registered for that."""
    (await register(store, host, owner)).close()
    await start(store, run_id)
    (record,) = (await claim(store, owner)).records
    return record


def entry(position: int, **changes: Any) -> Entry:
    return Entry(position, "step", position, "charge", 1, 1_000 + position, False, b'"ok"', b"d" * 8)._replace(**changes)


def advance(record: Record, *entries: Entry, **changes: Any) -> Transition:
    """Return an ADVANCE of the run as it stands in *record*."""
    run = record.run
    t = Transition(
        next(ids), run.key, run.generation_key, run.id, run.owner or "", run.fence, run.revision, Change.ADVANCE, RUNNING,
        run.position + len(entries), "[]", entries, digest="3.11:here", progressed=bool(entries),
    )  # fmt: skip
    return replace(t, **changes)


def park(record: Record, *entries: Entry, **changes: Any) -> Transition:
    t = advance(record, *entries, change=Change.PARK, status=WAITING, cancel_seq=record.run.cancel_seq)
    return replace(t, **changes)


def succeed(record: Record, *entries: Entry, **changes: Any) -> Transition:
    t = advance(record, *entries, change=Change.SUCCEED, status=RunStatus.SUCCEEDED, cancel_seq=record.run.cancel_seq, result=b'"done"')
    return replace(t, **changes)


def free(record: Record, **changes: Any) -> Transition:
    return replace(advance(record, change=Change.FREE, status=PENDING, wake_at=0), **changes)


def wait(seq: int = 1, name: str = "paid", correlation_id: str = "o-1", **changes: Any) -> NewWait:
    return replace(NewWait(seq, name, correlation_id, None), **changes)


def close(seq: int, how: Closing, event: int | None = None) -> CloseWait:
    return CloseWait(seq, how, event)


def event(event_id: str, name: str = "paid", correlation_id: str = "o-1", payload: bytes = b"{}") -> NewEvent:
    return NewEvent("default", name, correlation_id, event_id, payload, b"digest of " + payload)


async def again(store: Store, record: Record) -> Record:
    """Return the record as it stands now."""
    found = await store.record(record.run.namespace, record.run.id)
    assert found is not None
    return found


async def parked(store: Store, host: RealHost, run_id: str, *waits: NewWait, **changes: Any) -> Record:
    """Return a run that is parked on *waits*; they are queued for matching, not matched."""
    record = await claimed(store, host, run_id, f"owner of {run_id}")
    await store.apply([park(record, opens=waits, **changes)])
    return await again(store, record)


async def texts(store: Store) -> dict[str, str]:
    """Return the state of every event by its ID."""
    return {e.id: e.state for e in (await store.events("default", None, None, 100)).items}


async def walk(store: Store, where: Any, limit: int) -> list[str]:
    """Return the IDs that a walk over all pages sees."""
    seen: list[str] = []
    after: str | None = None
    while True:
        page = await store.runs(where, after, limit)
        seen += [run.id for run in page.items]
        if page.next is None:
            return seen
        after = page.next


def deposits(record: Record) -> Sequence[str | None]:
    return [w.deposit.event_id if w.deposit else None for w in record.waits]


class Ready:
    """A worker that would claim, and what it was told."""

    def __init__(self, store: Store, wanted: ClaimRequest | None) -> None:
        self.wanted = wanted
        self.claims: list[Claims] = []
        self.doubts = self.pokes = 0
        self.end = store.hub.listen(self._poked, self)

    def request(self) -> tuple[ClaimRequest, RunStatus] | None:
        return None if self.wanted is None else (self.wanted, RUNNING)

    @contextmanager
    def busy(self) -> Generator[None]:
        """Claim nothing meanwhile."""
        wanted, self.wanted = self.wanted, None
        yield
        self.wanted = wanted

    @contextmanager
    def waiting(self) -> Generator[tuple[ClaimRequest, RunStatus] | None]:
        yield self.request()

    def claimed(self, request: ClaimRequest, claims: Claims) -> None:
        assert request == self.wanted
        self.claims.append(claims)

    def doubt(self) -> None:
        self.doubts += 1

    def _poked(self) -> None:
        self.pokes += 1

    @property
    def runs(self) -> list[str]:
        return [record.run.id for claims in self.claims for record in claims.records]
