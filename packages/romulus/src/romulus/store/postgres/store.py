"""The PostgreSQL store: each promise of the contract, routed to the module that keeps it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, LiteralString, TypeVar, cast

from romulus.core.errors import CommitUnknown, StoreUnavailable
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
    RowsLocked,
    RunFilter,
    Store,
    StoredEvent,
    StoredWait,
    TakenOperations,
    body_limit,
)
from romulus.store.grouping import Grouped
from romulus.store.hub import Hub, Ready

from . import (
    apply,
    changing,
    children,
    claiming,
    delivering,
    health,
    looking,
    matching,
    migrate,
    operations,
    pools,
    reading,
    reporting,
    restoring,
    retention,
    sending,
    starting,
    waking,
    workers,
)
from .changing import Decide
from .clock import Clock
from .driver import COMMAND_S
from .evidence import keep
from .floors import Lists, Remembered
from .identity import Identity
from .lease import PostgresLease
from .lent import LentConnection
from .listening import Listener
from .notifying import Notifier
from .pacing import Paced
from .place import Place
from .pool import HASTE, Pool
from .reporting import Ask as AskOperation
from .reporting import Decide as DecideOperation
from .schema import VERSION
from .session import OwnSession
from .transaction import PostgresTransaction
from .using import Using

T = TypeVar("T")
log = logging.getLogger("romulus.store")

CONNECTIONS: Final = 6  # for everything but leases, listening and steps
STEPS_MAX: Final = 10  # transactional steps at a time
BODY_MAX: Final = 5_000_000  # µs that the body of one may take where no worker has said how long its lease is
HEALED_MAX: Final = 500  # forgotten runs woken, and ended ones whose messages are deleted, by one sweep
DOUBT_KEPT: Final = 120_000_000  # µs that runs are looked for which a claim without an answer may have taken
LISTS: Final = "lists"  # what looks at the lists are remembered by
RESENDS_MAX: Final = 5  # times a start or send whose commit got no answer is repeated: their IDs make that harmless


class PostgresStore:
    """The contract (`romulus.store.contract.Store`) on one PostgreSQL database."""

    thread_transactions = False  # asyncpg's connection belongs to its loop

    def __init__(self, place: Place, host: Host) -> None:
        self.url = place.shown
        self.hub = Hub()
        self._place, self._host = place, host
        self._pool = Pool(place, host, CONNECTIONS)
        self._steps = Pool(place, host, STEPS_MAX, LentConnection)
        self._body_limit = 0  # µs: of the transactional steps of this store object's workers
        token = f"{host.random_bits(64):016x}"
        self._notifier = Notifier(self._pool, host, token)
        self._listener = Listener(place, host, token)
        self._clock = Clock(self._pool, host)
        self._identity = Identity(self._pool)
        self._starts: Grouped[NewRun, Created | Existing] = Grouped(host, self._start, partial(self._start, hasty=True))
        self._sends: Grouped[NewEvent, Received | EventClash | EventRefused] = Grouped(host, self._send, partial(self._send, hasty=True))
        self._reports: Grouped[AskOperation, Decided | None] = Grouped(host, self._report, partial(self._report, hasty=True))
        self._records: Grouped[tuple[str, str], Record | None] = Grouped(host, self._named)
        self._statuses: Grouped[tuple[str, str], RunStatus | None] = Grouped(host, self._status)
        self._looks = Remembered()
        self._aside = matching.Aside(host)
        self._forgotten, self._unread, self._over = Paced[int](host), Paced[int](host), Paced[int](host)
        self._warned = False
        self._doubts: dict[str, list[tuple[int, int]]] = {}  # owner: (kept until, store time) of claims whose commit got no answer
        self._left: set[str] = set()  # owners whose last claim was one statement and has left something
        self._missed: set[str] = set()  # owners some of whose wakes were taken in a commit that got no answer

    # ---- life ------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, verify the schema and migrate a new or older one."""
        await self._pool.open()
        self._steps.pooled = self._pool.pooled
        try:
            await migrate.prepare(self._pool)
            await self._clock.read()
        except BaseException:
            await self._pool.close()
            raise

    async def close(self) -> None:
        """Wait for what is being written, then disconnect."""
        await self._starts.idle()
        await self._sends.idle()
        await self._reports.idle()
        await self._notifier.close()
        await self._listener.close()
        await self._steps.close()
        await self._pool.close()

    async def now(self) -> int:
        """Return the server's clock."""
        return await self._clock.read()

    def estimated_now(self) -> int:
        """Return the server's clock as last read, plus the time gone by since."""
        return self._clock.estimate()

    @property
    def listening(self) -> bool:
        """Return whether others' commits are heard of at once; False: they are polled for."""
        return self._listener.listening

    async def warnings(self) -> list[str]:
        """Return in words what about the database deserves a person's look."""
        listening = self._listener.listening if self._listener.wanted else None
        return await self._pool.read(lambda s: health.warnings(s, bool(self._pool.pooled), listening))

    # ---- clients ---------------------------------------------------------------------------
    async def start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        """Create every run whose (namespace, ID) is free."""
        return await self._starts.submit(runs)

    async def send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        """Store each event and queue it for matching."""
        return await self._sends.submit(events)

    async def change(self, namespace: str, run_id: str, decide: Decide) -> tuple[Run, Run] | None:
        """Read a run row, let *decide* say what it becomes, write that."""
        changed = await self._pool.write(lambda s: changing.change(s, namespace, run_id, decide))
        if changed is not None:
            self._told()
            self.hub.changed(namespace, run_id)
        return changed

    def using(self, connection: Any) -> Store:
        """Return a view that writes in the caller's open transaction."""
        return cast("Store", Using(self, self._host, self._identity, connection))  # what is not its own is this store's

    # ---- reads -----------------------------------------------------------------------------
    async def run(self, namespace: str, run_id: str) -> Run | None:
        """Return a run's row."""
        return await self._pool.read(lambda s: reading.run(s, namespace, run_id))

    async def statuses(self, namespace: str, run_ids: Sequence[str]) -> Mapping[str, RunStatus]:
        """Return the status of each of these runs that is there."""
        found = await self._statuses.submit([(namespace, run_id) for run_id in run_ids])
        return {run_id: status for run_id, status in zip(run_ids, found, strict=True) if status is not None}

    async def record(self, namespace: str, run_id: str) -> Record | None:
        """Return a run's record without entries."""
        (record,) = await self._records.submit([(namespace, run_id)])
        return record

    async def operation(self, namespace: str, operation_id: str) -> OperationRow | None:
        """Return an operation."""
        return await self._pool.read(lambda s: operations.find(s, namespace, operation_id))

    async def operations(
        self, namespace: str, state: OperationState | None, run: int | None, after: str | None, limit: int
    ) -> Listed[OperationRow]:
        """Return a page of operations."""
        return await self._pool.read(lambda s: operations.listed(s, namespace, state, run, after, limit))

    async def operation_notes(self, key: int) -> Sequence[OperationNote]:
        """Return an operation's history."""
        return await self._pool.read(lambda s: operations.notes(s, key))

    async def generations(self, run: int) -> Sequence[Generation]:
        """Return every generation of a run."""
        return await self._pool.read(lambda s: reading.generations(s, run))

    async def history(self, generation: int, start: int, limit: int) -> Sequence[Entry]:
        """Return entries from position *start*."""
        return await self._pool.read(lambda s: reading.history(s, generation, start, limit))

    async def runs(self, where: RunFilter, after: str | None, limit: int) -> Listed[Run]:
        """Return a page of runs."""
        return await self._pool.read(lambda s: reading.runs(s, where, after, limit))

    async def events(self, namespace: str, matched: bool | None, after: str | None, limit: int) -> Listed[StoredEvent]:
        """Return a page of events."""
        return await self._pool.read(lambda s: reading.events(s, namespace, matched, after, limit))

    async def waits(self, namespace: str, after: str | None, limit: int) -> Listed[StoredWait]:
        """Return a page of open waits."""
        return await self._pool.read(lambda s: reading.waits(s, namespace, after, limit))

    async def workers(self, namespace: str) -> Sequence[WorkerRow]:
        """Return registered workers."""
        return await self._pool.read(lambda s: workers.listed(s, namespace))

    async def evidence(self, run: int) -> Sequence[Evidence]:
        """Return a run's evidence."""
        return await self._pool.read(lambda s: reading.evidence(s, run))

    def changes(self) -> AsyncIterator[None]:
        """Yield soon after others have committed."""
        return self._listener.changes()

    # ---- workers ---------------------------------------------------------------------------
    async def register(self, worker: WorkerRow, lease: int) -> Lease:
        """Insert the worker's row and return its lease."""
        self._pool.lock_ms = min(self._pool.lock_ms, lease // 10_000)
        self._body_limit = max(self._body_limit, body_limit(lease))
        self._steps.command_s = max(COMMAND_S, 2 * self._body_limit / 1_000_000)  # whose body takes too long finds out by itself
        begun = self._host.monotonic()
        await self._repeatable(lambda s: workers.register(s, worker, lease))
        return PostgresLease(self._place, self._host, self._pool.pooled, worker.id, lease, begun, self._told)

    async def deregister(self, worker_id: str) -> None:
        """Remove a worker's row."""
        await self._repeatable(lambda s: workers.deregister(s, worker_id))
        self._told()

    async def mark_stopping(self, worker_id: str) -> None:
        """Show that the worker claims nothing any more."""
        await self._repeatable(lambda s: workers.mark_stopping(s, worker_id))

    async def mark_dead(self, worker_id: str) -> None:
        """Mark a worker dead now."""
        await self._repeatable(lambda s: workers.mark_dead(s, worker_id))

    async def reopen_held(self, namespace: str, serves: Sequence[tuple[str, str, str]], to: RunStatus) -> int:
        """Make runs held for their code claimable again. No lock is taken while there are none."""
        held = await self._pool.read(lambda s: workers.held(s, namespace, serves))
        return await self._repeatable(lambda s: workers.reopen_held(s, namespace, held, to)) if held else 0

    async def claim(self, request: ClaimRequest, to: RunStatus) -> Claims:
        """Claim due runs. Nothing is written, and no lock taken, while nothing is due."""
        begun = self._host.monotonic()
        seen = await self._pool.read(lambda s: self._look(s, request))
        self._clock.seen(seen.now, begun)
        if self._outdated(seen.schema):
            return Claims((), None)
        doubts = self._doubtful(request.owner)
        if seen.queued and doubts:  # what a lost commit may have taken is locked first: not after queues
            await self._match(seen.queued, request.match_max)
            return Claims((), None, unmatched=True)
        try:
            claims = await self._claim(request, to, seen, doubts)
        except RowsLocked:
            if not seen.queued:
                raise
            self._aside.put((row.queue for row in seen.queued), matching.ASIDE_MAX)  # another matcher of theirs is stuck: claims go on
            seen.queued = []
            claims = await self._claim(request, to, seen, doubts)
        return self._not_later(claims)

    async def reclaim(self, run: int, owner: str, fence: int) -> Record | None:
        """Take a new fence on a run that *owner* still owns under *fence*."""
        return await self._pool.statement(lambda s: claiming.reclaim(s, run, owner, fence))

    async def owned(self, owner: str) -> Sequence[Owned]:
        """Return every run that *owner* owns."""
        return await self._pool.read(lambda s: claiming.owned(s, owner))

    async def apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        """Write every transition whose guards hold, in one commit."""
        verdicts = await apply.apply(self._pool, transitions, self._forgotten.soon)
        if any(apply.concerns_others(t) for t in transitions):
            self._notifier.soon()
        return verdicts

    async def match(self, limit: int) -> int:
        """Match queued events and waits."""
        rows = await self._pool.read(lambda s: self._head(s, limit))
        if rows:
            await self._match(rows, limit)
        return len(rows)

    async def pulse(self, owner: str) -> Sequence[Record]:
        """Take the `wakes` of runs that *owner* owns."""
        try:
            keys = await self._pool.statement(lambda s: waking.take(s, owner, self._known(LISTS) or Lists()))
        except CommitUnknown as error:
            self._missed.add(owner)
            raise StoreUnavailable(str(error)) from error
        if owner in self._missed:  # some may have been taken without an answer: every run looks again
            keys = await self._pool.read(lambda s: waking.owned(s, owner))
        records = await self._pool.read(lambda s: reading.records(s, keys))
        self._missed.discard(owner)
        return records

    async def children(self, generation: int) -> Sequence[StartedChild]:
        """Return the children that a generation has started."""
        return await self._pool.read(lambda s: children.started(s, generation))

    async def close_children(self, limit: int, decide: AskChild) -> int:
        """Carry out queued requests at children."""
        known = self._known(LISTS) or Lists()
        if not await self._pool.read(lambda s: children.requests(s, 1, known)):
            return 0
        closed = await self._repeatable(lambda s: changing.close_children(s, limit, decide, known))
        if closed:
            self._told()
        return closed

    async def operations_of(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations that a generation awaits."""
        return await self._pool.read(lambda s: operations.of_generation(s, generation))

    async def open_operations(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations of a generation that are not settled."""
        return await self._pool.read(lambda s: operations.open_of(s, generation))

    async def take_operations(
        self, owner: str, namespace: str, serves: OperationsServed, limit: int, lost: OperationState | None
    ) -> TakenOperations:  # fmt: skip
        """Claim due operations. No lock is taken while nothing is due and no claim is over."""
        nothing = await self._pool.read(lambda s: operations.nothing_to_take(s, owner, namespace, serves, lost))
        if nothing is not None:
            return nothing
        return await self._pool.write(lambda s: operations.take(s, owner, namespace, serves, limit, lost))

    async def take_queued(self, owner: str, namespace: str, serves: OperationsServed, limit: int) -> TakenOperations:
        """Claim operations that are queued in pools. No lock is taken while nothing is due."""
        nothing = await self._pool.read(lambda s: operations.nothing_queued(s, owner, namespace, serves))
        if nothing is not None:
            return nothing
        return await self._pool.write(lambda s: operations.take_queued(s, owner, namespace, serves, limit))

    async def unserved_operations(
        self, namespace: str, served: Sequence[tuple[str, str, bool]], overdue: int, limit: int
    ) -> Sequence[OperationRow]:  # fmt: skip
        """Return operations that nobody can settle."""
        return await self._pool.read(lambda s: operations.unserved(s, namespace, served, overdue, limit))

    async def report(self, reports: Sequence[Report], decide: DecideOperation, to: RunStatus) -> Sequence[Decided | None]:
        """Let *decide* say what reports make of their operations."""
        return await self._reports.submit([(report, decide, to) for report in reports])

    async def pooled(self, generation: int) -> Sequence[PoolStanding]:
        """Return the attempts that a generation has in pools."""
        return await self._pool.read(lambda s: pools.of_generation(s, generation))

    async def queued_pools(self, namespace: str) -> Sequence[QueuedPool]:
        """Return the pools in which attempts wait to be claimed."""
        return await self._pool.read(lambda s: pools.waiting(s, namespace))

    async def take_pool(
        self, owner: str, namespace: str, names: Sequence[str], steps: Sequence[str], limit: int, lease: int, aside: Sequence[int] = ()
    ) -> TakenPool:  # fmt: skip
        """Claim due attempts of pools. No lock is taken while nothing is due."""
        seen = await self._pool.read(lambda s: pools.look(s, namespace, names, steps, aside))
        if seen.next is None or seen.next > seen.now:
            return TakenPool([], seen.next)
        return await self._pool.write(lambda s: pools.take(s, owner, namespace, names, steps, limit, lease, aside))

    async def beat_pool(self, beats: Sequence[PoolBeat]) -> Sequence[bool]:
        """Store signs of life."""
        return await self._or_free(lambda s, free: pools.beat(s, beats, free=free))

    async def report_pool(self, reports: Sequence[PoolReport]) -> Sequence[bool | None]:
        """Put how attempts ended into their runs' inboxes."""
        answers = await self._or_free(lambda s, free: pools.report(s, reports, free=free))
        self._told()
        return answers

    async def lose_pool(self, limit: int) -> int:
        """Give attempts up whose claim is over."""
        look = self._over.look(lambda: self._pool.read(pools.some_over)) if self._over.due else self._pool.read(pools.orphaned)
        if not await look:
            return 0
        lost = await self._repeatable(lambda s: pools.lose(s, limit))
        self._told()
        return lost

    async def expire_events(self, kept: int, limit: int) -> int:
        """Delete events that were kept long enough."""
        old = await self._pool.read(lambda s: retention.expired(s, kept, limit))
        return await self._repeatable(lambda s: retention.expire(s, old), matching.locks(old)) if old else 0

    async def sweep(self, limit: int, to: RunStatus, *, alone_after: int = 3, pause: int = 1_000_000) -> Freed:
        """Mark workers dead, then free runs of dead or unknown owners."""
        over, lost = await self._pool.read(workers.over), await self._pool.read(workers.lost)
        await self._heal(died=bool(over or lost))
        if not over and not lost:
            return Freed()
        freed = await self._repeatable(lambda s: workers.sweep(s, limit, to, alone_after, pause))
        self._told()
        return freed

    async def keep_evidence(self, run: int, evidence: Evidence) -> None:
        """Append evidence."""
        await self._repeatable(lambda s: keep(s, run, evidence))

    async def restore(self, since: int | None = None) -> Restored:
        """Begin a new incarnation after the database was put back from a backup."""
        restored = await restoring.restore(self._place, self._host, self._pool.pooled, since)
        self._told()
        return restored

    async def trust(self) -> int:
        """Take the doubt from every run."""
        return await self._repeatable(restoring.trust)

    async def transaction(self) -> PostgresTransaction:
        """Begin a transaction for a transactional step."""
        transaction = PostgresTransaction(self._steps, self._pool, self._told, self._body_limit or BODY_MAX)
        await transaction.begin()
        return transaction

    # ---- inside ----------------------------------------------------------------------------
    async def _start(self, runs: Sequence[NewRun], *, hasty: bool = False) -> Sequence[Created | Existing]:
        answers = await self._resent(lambda s: starting.start(s, runs), lambda found: starting.ours(runs, found), hasty=hasty)
        self._told()
        return answers

    async def _send(self, events: Sequence[NewEvent], *, hasty: bool = False) -> Sequence[Received | EventClash | EventRefused]:
        unknown = False
        if len(events) == 1 and not hasty:
            try:
                if await self._delivered(events[0]):
                    return [Received(events[0].event_id, duplicate=False)]
            except CommitUnknown:
                unknown = True
                self.hub.poke()  # the worker looks for what may have been claimed for it
        answers = await self._resent(lambda s: sending.send(s, events), unknown=unknown, hasty=hasty)
        self._told()
        return answers

    async def _delivered(self, event: NewEvent) -> bool:
        """Store a lone event, and give it to its run in the same commit if a worker here would claim that; False: it was not stored."""
        for ready in self.hub.ready:
            with ready.waiting() as wanted:
                if wanted is not None and wanted[0].namespace == event.namespace:
                    return await self._deliver(event, ready, *wanted)
        return False

    async def _deliver(self, event: NewEvent, ready: Ready, request: ClaimRequest, to: RunStatus) -> bool:
        times: list[int] = []

        async def deliver(session: OwnSession) -> delivering.Delivered | None:
            times.append(self._clock.estimate())
            return await delivering.deliver(session, event, request, to, times[-1])

        try:
            delivered = await self._pool.statement(deliver)
        except CommitUnknown:
            self._doubt(request.owner, times)
            raise
        if delivered is None:
            return False
        if delivered.record is None:
            self._told()
        else:
            ready.claimed(request, Claims([delivered.record], None, wakes=False, closing=False, alone=False))
        return True

    async def _status(self, names: Sequence[tuple[str, str]]) -> Sequence[RunStatus | None]:
        return await self._pool.read(lambda s: reading.statuses(s, names))

    async def _named(self, names: Sequence[tuple[str, str]]) -> Sequence[Record | None]:
        """Read what was asked for while the reading before was under way: a thousand clients wait for their runs with few statements."""
        return await self._pool.read(lambda s: reading.named(s, names))

    def _outdated(self, schema: int) -> bool:
        """Return whether the schema has moved on beyond this release: it finishes what it has and claims nothing more."""
        if schema > VERSION and not self._warned:
            self._warned = True
            log.error("%s needs a release for schema %d or newer now: this worker claims nothing more, upgrade it", self.url, schema)
        return schema > VERSION

    async def _report(self, asked: Sequence[AskOperation], *, hasty: bool = False) -> Sequence[Decided | None]:
        answers = await self._pool.write(lambda s: reporting.report(s, asked), HASTE if hasty else "")
        self._told()
        for answer in answers:
            if answer is not None and answer.changed:
                self.hub.changed(answer.row.namespace, answer.row.run_id)
        return answers

    def _told(self) -> None:
        self.hub.poke()
        self._notifier.soon()

    def _matched(self) -> None:
        self.hub.matched()
        self._notifier.soon()

    def _not_later(self, claims: Claims) -> Claims:
        """Have the next look no later than the queues set aside may be matched."""
        pause = self._aside.pause
        if pause is not None:
            due = self.estimated_now() + pause
            claims.next_due = due if claims.next_due is None else min(claims.next_due, due)
        return claims

    def _known(self, what: Hashable) -> Any:
        return self._looks.of(what, self._host.monotonic(), self._pool.losses)

    async def _look(self, session: OwnSession, request: ClaimRequest) -> looking.Look:
        begun, losses, what = self._host.monotonic(), self._pool.losses, looking.what(request)
        lists = self._known(LISTS)
        seen = await looking.look(session, request, request.match_max, self._known(what), lists)
        seen.queued = self._aside.free(seen.queued)
        self._looks.keep(what, seen.queues, begun, losses, whole=seen.whole)
        self._looks.keep(LISTS, seen.lists, begun, losses, whole=lists is None)
        return seen

    async def _head(self, session: OwnSession, limit: int) -> list[matching.ToMatch]:
        begun, losses, lists = self._host.monotonic(), self._pool.losses, self._known(LISTS)
        rows, seen = await matching.head(session, limit, lists)
        self._looks.keep(LISTS, seen, begun, losses, whole=lists is None)
        return self._aside.free(rows)

    async def _claim(self, request: ClaimRequest, to: RunStatus, seen: looking.Look, doubts: list[int]) -> Claims:
        if seen.idle and not doubts:
            return claiming.claims((), seen, seen.later if seen.live else None)
        times: list[int] = []
        try:
            if not doubts and request.owner not in self._left:
                claimed = await claiming.claim_at_once(self._pool, request, to, seen, times)
                if claimed is not None:
                    if claimed.left:
                        self._left.add(request.owner)
                    return claimed.claims
            locks = matching.locks(seen.queued)
            claimed = await self._pool.write(lambda s: claiming.claim(s, request, to, seen, doubts, times), locks)
            self._left.discard(request.owner)
        except CommitUnknown as error:
            self._doubt(request.owner, times)
            raise StoreUnavailable(str(error)) from error
        self._aside.put(claimed.blocked)
        if seen.queued and claimed.left:
            self._matched()  # what was matched may be another worker's to wake or to claim
        return claimed.claims

    async def _heal(self, *, died: bool) -> None:
        """Wake what was forgotten and forget what nobody will read; *died*: a worker is gone, and may have left such a run just now."""
        forgotten = await self._forgotten.look(lambda: self._pool.read(lambda s: waking.forgotten(s, HEALED_MAX)), at_once=died)
        if forgotten:
            await self._repeatable(lambda s: waking.wake_dealt(s, forgotten))
        unread = await self._unread.look(lambda: self._pool.read(lambda s: children.unread(s, HEALED_MAX)))
        if unread:
            await self._repeatable(lambda s: children.forget(s, unread))

    async def _match(self, rows: Sequence[matching.ToMatch], limit: int) -> None:
        try:
            matched = await self._repeatable(lambda s: matching.match(s, rows, limit), matching.locks(rows))
        except RowsLocked:
            self._aside.put((row.queue for row in rows), matching.ASIDE_MAX)
            return
        self._aside.put(matched.blocked)
        self._matched()

    def _doubt(self, owner: str, times: Sequence[int]) -> None:
        """Have the next claims look for what one may have taken at *times*, whose commit got no answer."""
        until = self._host.monotonic() + DOUBT_KEPT
        self._doubts.setdefault(owner, []).extend((until, time) for time in times)

    def _doubtful(self, owner: str) -> list[int]:
        """Return the times of claims that may have been committed, or may yet be: an old backend can still be at it."""
        now = self._host.monotonic()
        kept = [doubt for doubt in self._doubts.pop(owner, []) if doubt[0] > now]
        if kept:
            self._doubts[owner] = kept
        return [time for _, time in kept]

    async def _repeatable(self, work: Callable[[OwnSession], Awaitable[T]], first: LiteralString = "") -> T:
        """Run *work* in a transaction that does no harm when it is done twice: what is unknown is as good as not done."""
        try:
            return await self._pool.write(work, first)
        except CommitUnknown as error:
            raise StoreUnavailable(str(error)) from error

    async def _or_free(self, work: Callable[[OwnSession, bool], Awaitable[T]]) -> T:
        """Run repeatable *work*; where it has waited for locked rows in vain, once more for what is free."""
        try:
            return await self._repeatable(lambda s: work(s, False))
        except RowsLocked:
            return await self._repeatable(lambda s: work(s, True))

    async def _resent(
        self, work: Callable[[OwnSession], Awaitable[T]], again: Callable[[T], T] = lambda found: found, *, unknown: bool = False,
        hasty: bool = False,
    ) -> T:  # fmt: skip
        """Run *work*, one writing statement that is known again by its IDs, until it gets an answer; *again* reads that of a repetition.

        *unknown*: the same was sent before, and its commit had no answer. *hasty*: it does not wait long for locked rows.

        Raises:
            StoreUnavailable: nothing was written. CommitUnknown: an earlier try may have been applied.
        """
        for _ in range(RESENDS_MAX):
            try:
                found = await (self._pool.write(work, HASTE) if hasty else self._pool.statement(work))
            except CommitUnknown:
                unknown = True
                continue
            except StoreUnavailable as error:
                if unknown:
                    raise CommitUnknown(f"{error}; whether an earlier try was applied is not known") from error
                raise
            if unknown:  # seen, after its commit had no answer
                await self._pool.flush()
            return again(found) if unknown else found
        raise CommitUnknown(f"{self._place.shown}: no answer to {RESENDS_MAX} commits")
