"""The SQLite store: each promise of the contract, routed to the module that keeps it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from romulus.core.machine import RunStatus
from romulus.core.operations import Decided, OperationNote, OperationRow, OperationState, Report
from romulus.core.pools import PoolBeat, PoolReport, PoolStanding, TakenPool
from romulus.core.ports import Host
from romulus.core.record import Entry, Generation, Record, Run, StartedChild, WorkerRow
from romulus.core.restoring import Restored
from romulus.core.transition import Created, EventClash, EventRefused, Existing, NewEvent, NewRun, Received, Transition, Verdict
from romulus.store.contract import (
    AskChild,
    ClaimRequest,
    Claims,
    Evidence,
    Freed,
    Lease,
    Listed,
    OperationsServed,
    Owned,
    QueuedPool,
    RunFilter,
    Store,
    StoredEvent,
    StoredWait,
    TakenOperations,
)
from romulus.store.grouping import Grouped
from romulus.store.hub import Hub

from . import (
    apply,
    changing,
    children,
    claiming,
    delivering,
    matching,
    migrate,
    operations,
    pools,
    reading,
    restoring,
    retention,
    starting,
    workers,
)
from .changing import Decide
from .clock import Clock, catch_up
from .connection import Place
from .evidence import keep, of_run
from .faults import FileBusy
from .operations import Ask as AskOperation
from .operations import Decide as DecideOperation
from .session import Session
from .transaction import SQLiteTransaction
from .using import Using
from .watching import Watch
from .writer import Writer

T = TypeVar("T")

LOCK_WAIT: Final = 1_500_000  # µs: a tenth of the default lease
NEAR_MAX: Final = 10  # runs whose statuses are read in place
CALLER_TRIES: Final = 20  # each waits LOCK_WAIT, and in turn with other writes: no lease hurries a client as it hurries a worker


class SQLiteStore:
    """The contract (`romulus.store.contract.Store`) on one SQLite file."""

    thread_transactions = True

    def __init__(self, place: Place, host: Host, *, lock_wait: int = LOCK_WAIT) -> None:
        self.url = "sqlite://" if place.memory else f"sqlite:///{place.path}"
        self.hub = Hub()
        self._place, self._host, self._lock_wait = place, host, lock_wait
        self.clock = Clock(host)
        self._writer = Writer(self._session(lock_wait), host, lock_wait)
        self._near = self._session(0)  # short reads on the caller's thread
        self._far = self._session(lock_wait)  # long reads on the reader's thread
        self._step = self._session(lock_wait)  # transactional steps
        self._watch = Watch(self._writer, host)
        self._starts: Grouped[NewRun, Created | Existing] = Grouped(host, self._start)
        self._sends: Grouped[NewEvent, Received | EventClash | EventRefused] = Grouped(host, self._send)
        self._reports: Grouped[AskOperation, Decided | None] = Grouped(host, self._report)

    # ---- life ------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, verify the schema and migrate a new or older one."""
        await self._host.offload("writer", self._open)

    async def close(self) -> None:
        """Wait for what is being written, then disconnect."""
        await self._starts.idle()
        await self._sends.idle()
        await self._reports.idle()
        release = await self._writer.hold()
        self._watch.close()
        await self._host.offload("reader", self._far.close)
        for session in (self._near, self._step, self._writer.session):
            session.close()
        release()

    async def now(self) -> int:
        """Return the store's clock: this machine's, but never back."""
        return self.clock.now()

    def estimated_now(self) -> int:
        """Return the store's clock."""
        return self.clock.now()

    # ---- clients ---------------------------------------------------------------------------
    async def start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        """Create every run whose (namespace, ID) is free."""
        return await self._starts.submit(runs)

    async def send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        """Store each event and queue it for matching."""
        return await self._sends.submit(events)

    async def change(self, namespace: str, run_id: str, decide: Decide) -> tuple[Run, Run] | None:
        """Read a run row, let *decide* say what it becomes, write that."""
        changed = await self._write_patiently(lambda s, now: changing.change(s, namespace, run_id, decide, now))
        if changed is not None:
            self.hub.poke()
            self.hub.changed(namespace, run_id)
        return changed

    def using(self, connection: Any) -> Store:
        """Return a view that writes in the caller's open transaction."""
        return cast("Store", Using(self, self._place, self._host, connection))  # what is not its own is this store's

    # ---- reads -----------------------------------------------------------------------------
    async def run(self, namespace: str, run_id: str) -> Run | None:
        """Return a run's row."""
        return await self._read_near(lambda s: reading.run(s, namespace, run_id))

    async def statuses(self, namespace: str, run_ids: Sequence[str]) -> Mapping[str, RunStatus]:
        """Return the status of each of these runs that is there."""
        read = self._read_near if len(run_ids) <= NEAR_MAX else self._read_far
        return await read(lambda s: reading.statuses(s, namespace, run_ids))

    async def record(self, namespace: str, run_id: str) -> Record | None:
        """Return a run's record without entries."""
        return await self._read_near(lambda s: reading.record(s, namespace, run_id))

    async def generations(self, run: int) -> Sequence[Generation]:
        """Return every generation of a run."""
        return await self._read_far(lambda s: reading.generations(s, run))

    async def history(self, generation: int, start: int, limit: int) -> Sequence[Entry]:
        """Return entries from position *start*."""
        return await self._read_far(lambda s: reading.history(s, generation, start, limit))

    async def runs(self, where: RunFilter, after: str | None, limit: int) -> Listed[Run]:
        """Return a page of runs."""
        return await self._read_far(lambda s: reading.runs(s, where, after, limit))

    async def events(self, namespace: str, matched: bool | None, after: str | None, limit: int) -> Listed[StoredEvent]:
        """Return a page of events."""
        return await self._read_far(lambda s: reading.events(s, namespace, matched, after, limit))

    async def waits(self, namespace: str, after: str | None, limit: int) -> Listed[StoredWait]:
        """Return a page of open waits."""
        return await self._read_far(lambda s: reading.waits(s, namespace, after, limit))

    async def operation(self, namespace: str, operation_id: str) -> OperationRow | None:
        """Return an operation."""
        return await self._read_near(lambda s: operations.find(s, namespace, operation_id))

    async def operations(
        self, namespace: str, state: OperationState | None, run: int | None, after: str | None, limit: int
    ) -> Listed[OperationRow]:
        """Return a page of operations."""
        return await self._read_far(lambda s: operations.listed(s, namespace, state, run, after, limit))

    async def operation_notes(self, key: int) -> Sequence[OperationNote]:
        """Return an operation's history."""
        return await self._read_far(lambda s: operations.notes(s, key))

    async def workers(self, namespace: str) -> Sequence[WorkerRow]:
        """Return registered workers."""
        return await self._read_near(lambda s: workers.listed(s, namespace))

    async def evidence(self, run: int) -> Sequence[Evidence]:
        """Return a run's evidence."""
        return await self._read_far(lambda s: of_run(s, run))

    def changes(self) -> AsyncIterator[None]:
        """Yield soon after others have committed."""
        return self._watch.changes()

    # ---- workers ---------------------------------------------------------------------------
    async def register(self, worker: WorkerRow, lease: int) -> Lease:
        """Insert the worker's row and return its lease."""
        self._writer.patience = min(self._writer.patience, lease // 10)
        until = await self._write(lambda s, now: workers.register(s, worker, lease, now))
        return workers.SQLiteLease(self._session(lease // 4), worker.id, lease, until)

    async def deregister(self, worker_id: str) -> None:
        """Remove a worker's row."""
        await self._write(lambda s, _: workers.deregister(s, worker_id))

    async def mark_stopping(self, worker_id: str) -> None:
        """Show that the worker claims nothing any more."""
        await self._write(lambda s, _: workers.mark_stopping(s, worker_id))

    async def mark_dead(self, worker_id: str) -> None:
        """Mark a worker dead now."""
        await self._write(lambda s, _: workers.mark_dead(s, worker_id))

    async def reopen_held(self, namespace: str, serves: Sequence[tuple[str, str, str]], to: RunStatus) -> int:
        """Make runs held for their code claimable again."""
        return await self._writer.run(lambda s: workers.reopen_held(s, namespace, serves, to))

    async def claim(self, request: ClaimRequest, to: RunStatus) -> Claims:
        """Claim due runs."""
        claims, matched = await self._writer.run(lambda s: claiming.claim(s, request, to))
        if matched:
            self.hub.matched()
        return claims

    async def reclaim(self, run: int, owner: str, fence: int) -> Record | None:
        """Take a new fence on a run that *owner* still owns under *fence*."""
        return await self._write(lambda s, now: claiming.reclaim(s, run, owner, fence, now))

    async def owned(self, owner: str) -> Sequence[Owned]:
        """Return every run that *owner* owns."""
        return await self._read_near(lambda s: claiming.owned(s, owner))

    async def apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        """Write every transition whose guards hold, in one commit."""
        return await self._writer.run(partial(apply.apply, transitions=transitions))

    async def match(self, limit: int) -> int:
        """Match queued events and waits."""
        matched = await self._writer.run(lambda s: matching.match(s, limit))
        if matched:
            self.hub.matched()
        return matched

    async def pulse(self, owner: str) -> Sequence[Record]:
        """Take the `wakes` of runs that *owner* owns."""
        return await self._writer.run(lambda s: claiming.pulse(s, owner))

    async def children(self, generation: int) -> Sequence[StartedChild]:
        """Return the children that a generation has started."""
        return await self._read_far(lambda s: children.started(s, generation))

    async def close_children(self, limit: int, decide: AskChild) -> int:
        """Carry out queued requests at children."""
        closed = await self._writer.run(lambda s: changing.close_children(s, limit, decide))
        if closed:
            self.hub.poke()
        return closed

    async def operations_of(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations that a generation awaits."""
        return await self._read_far(lambda s: operations.of_generation(s, generation))

    async def open_operations(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations of a generation that are not settled."""
        return await self._read_far(lambda s: operations.open_of(s, generation))

    async def take_operations(
        self, owner: str, namespace: str, serves: OperationsServed, limit: int, lost: OperationState | None
    ) -> TakenOperations:  # fmt: skip
        """Claim due operations."""
        return await self._writer.run(lambda s: operations.take(s, owner, namespace, serves, limit, lost))

    async def take_queued(self, owner: str, namespace: str, serves: OperationsServed, limit: int) -> TakenOperations:
        """Claim operations that are queued in pools."""
        return await self._writer.run(lambda s: operations.take_queued(s, owner, namespace, serves, limit))

    async def unserved_operations(
        self, namespace: str, served: Sequence[tuple[str, str, bool]], overdue: int, limit: int
    ) -> Sequence[OperationRow]:  # fmt: skip
        """Return operations that nobody can settle."""
        return await self._read_far(lambda s: operations.unserved(s, namespace, served, overdue, limit))

    async def report(self, reports: Sequence[Report], decide: DecideOperation, to: RunStatus) -> Sequence[Decided | None]:
        """Let *decide* say what reports make of their operations."""
        return await self._reports.submit([(report, decide, to) for report in reports])

    async def pooled(self, generation: int) -> Sequence[PoolStanding]:
        """Return the attempts that a generation has in pools."""
        return await self._read_far(lambda s: pools.of_generation(s, generation))

    async def queued_pools(self, namespace: str) -> Sequence[QueuedPool]:
        """Return the pools in which attempts wait to be claimed."""
        return await self._read_far(lambda s: pools.waiting(s, namespace))

    async def take_pool(
        self, owner: str, namespace: str, names: Sequence[str], steps: Sequence[str], limit: int, lease: int, aside: Sequence[int] = ()
    ) -> TakenPool:  # fmt: skip
        """Claim due attempts of pools."""
        return await self._writer.run(lambda s: pools.take(s, owner, namespace, names, steps, limit, lease, aside))

    async def beat_pool(self, beats: Sequence[PoolBeat]) -> Sequence[bool]:
        """Store signs of life."""
        return await self._writer.run(lambda s: pools.beat(s, beats))

    async def report_pool(self, reports: Sequence[PoolReport]) -> Sequence[bool]:
        """Put how attempts ended into their runs' inboxes."""
        answers = await self._write(lambda s, now: pools.report(s, reports, now))
        self.hub.poke()
        return answers

    async def lose_pool(self, limit: int) -> int:
        """Give attempts up whose claim is over."""
        lost = await self._writer.run(lambda s: pools.lose(s, limit))
        if lost:
            self.hub.poke()
        return lost

    async def expire_events(self, kept: int, limit: int) -> int:
        """Delete events that were kept long enough."""
        return await self._writer.run(lambda s: retention.expire(s, kept, limit))

    async def sweep(self, limit: int, to: RunStatus, *, alone_after: int = 3, pause: int = 1_000_000) -> Freed:
        """Mark workers dead, then free runs of dead or unknown owners."""
        freed = await self._writer.run(lambda s: workers.sweep(s, limit, to, alone_after, pause))
        if freed.dead or freed.runs:
            self.hub.poke()
        return freed

    async def keep_evidence(self, run: int, evidence: Evidence) -> None:
        """Append evidence."""
        await self._write(lambda s, _: keep(s, run, evidence))

    async def restore(self, since: int | None = None) -> Restored:
        """Begin a new incarnation after the file was put back from a backup."""
        restored = await self._write_patiently(lambda s, now: restoring.restore(s, since, now))
        self.hub.poke()
        return restored

    async def trust(self) -> int:
        """Take the doubt from every run."""
        return await self._write_patiently(lambda s, _: restoring.trust(s))

    async def transaction(self) -> SQLiteTransaction:
        """Begin a transaction for a transactional step."""
        release = await self._writer.hold()
        try:
            transaction = SQLiteTransaction(self._step, release)
            await transaction.begin(self._writer.patience)
        except BaseException:
            release()
            raise
        return transaction

    # ---- inside ----------------------------------------------------------------------------
    def _session(self, patience: int) -> Session:
        return Session(self._place, self._host, patience, clock=self.clock)

    def _open(self) -> None:
        session = self._writer.session
        migrate.prepare(session)
        session.read(catch_up)
        self._near.touch()
        self._far.touch()

    async def _start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        return await self._bring(
            lambda s, now: starting.start(s, runs, now),
            lambda s, request, to, now: (starting.start(s, runs, now), claiming.claim_within(s, request, to, now, unmatched=False)),
        )

    async def _send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        return await self._bring(
            lambda s, now: matching.send(s, events, now),
            lambda s, request, to, now: delivering.send_and_claim(s, events, request, to, now),
        )

    async def _report(self, asked: Sequence[AskOperation]) -> Sequence[Decided | None]:
        answers = await self._write_patiently(lambda s, now: operations.report(s, asked, now))
        self.hub.poke()
        for answer in answers:
            if answer is not None and answer.changed:
                self.hub.changed(answer.row.namespace, answer.row.run_id)
        return answers

    async def _bring(self, work: Callable[[Session, int], T], with_claim: claiming.WithClaim[T]) -> T:
        """Write what a worker waits for. Done in place, a worker here claims in the same commit; the others are told of it."""
        answers, looked = await self._patiently(
            lambda s: (s.write(work), None), lambda s: claiming.beside(s, work, with_claim, self.hub.ready)
        )  # fmt: skip
        self.hub.poke(but=looked)
        return answers

    async def _write(self, work: Callable[[Session, int], T]) -> T:
        return await self._writer.run(lambda session: session.write(work))

    async def _write_patiently(self, work: Callable[[Session, int], T]) -> T:
        return await self._patiently(lambda session: session.write(work))

    async def _patiently(self, work: Callable[[Session], T], here: Callable[[Session], T] | None = None) -> T:
        for _ in range(CALLER_TRIES - 1):
            try:
                return await self._writer.run(work, here)
            except FileBusy:
                continue  # nothing was written
        return await self._writer.run(work, here)

    async def _read_near(self, work: Callable[[Session], T]) -> T:
        try:
            return self._near.read(work)
        except FileBusy:
            return await self._read_far(work)

    async def _read_far(self, work: Callable[[Session], T]) -> T:
        return await self._host.offload("reader", lambda: self._far.read(work))


def place_of(path: str) -> Place:
    """Return the place of a file path, made absolute."""
    return Place(str(Path(path).expanduser().absolute()))
