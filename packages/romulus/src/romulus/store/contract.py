"""What the engine asks of a store, and every promise a store makes.

A store knows rows, guards and clocks. It decides no status: statuses come in with the request, from `core.machine`.
Every method is all-or-nothing, may be called again after `StoreUnavailable` (nothing was committed), and uses the
store's own clock for every expiry, deadline and due time. Text is validated by the caller (`core.text`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from romulus.core.errors import StoreUnavailable
from romulus.core.machine import RunStatus
from romulus.core.operations import Decided, OperationNote, OperationRow, OperationState, Report
from romulus.core.pools import PoolBeat, PoolReport, PoolStanding, TakenPool
from romulus.core.record import Entry, Generation, Record, Run, StartedChild, WorkerRow
from romulus.core.restoring import Restored
from romulus.core.transition import Created, EventClash, EventRefused, Existing, NewEvent, NewRun, Next, Received, Transition, Verdict

from .hub import Hub

T = TypeVar("T")
UNMATCHED_MAX: Final = 10_000  # events of one name and correlation ID that wait for a run to take them
EVIDENCE_MAX: Final = 100  # rows of one run
UNREAD_MAX: Final = 20  # of them: of attempts that workers could not read
INBOX_MAX: Final = 500  # messages of an inbox that are read with a record, the oldest


# A child, its generation, how and why it is asked; what a retry looks at: of its journal (cancels, what ended it), and whether it has
# open operations; store now.
AskChild: TypeAlias = Callable[[Run, Generation, str, str, Sequence[Entry], bool, int], Next | None]


ENDED_ITSELF: Final = "the step's body ended the transaction itself: leave BEGIN, COMMIT and ROLLBACK to the engine"


def body_limit(lease: int) -> int:
    """Return the µs that the body of a transactional step may take: what it holds must be free before others take its run over."""
    return lease // 3


class BatchRejected(Exception):
    """A statement of the batch raised; the whole batch was rolled back. The committer bisects it."""


class RowsLocked(StoreUnavailable):
    """Another transaction holds rows that this needs, for longer than is waited for: nothing was written, and nothing else is amiss."""


@dataclass(slots=True)
class ClaimRequest:
    """Which runs a worker can serve now."""

    owner: str  # worker ID
    namespace: str
    serves: Sequence[tuple[str, str, str]]  # (workflow, version, digest of the code here)
    limit: int
    others: Sequence[str] = ()  # digests other live workers have: runs last advanced by such code wait `prefer` longer for them
    prefer: int = 1_000_000  # µs
    alone: bool = False  # claim only runs that lost `alone_after` claims or more, else only runs that lost fewer
    alone_after: int = 3
    match_max: int = 0  # rows of `to_match` that are matched first, in the same commit


@dataclass(slots=True)
class Claims:
    """What was claimed."""

    records: Sequence[Record]  # run, generation, attempts and waits; no entries: read them with `history`
    next_due: int | None  # store µs: when the next run of `serves` that nobody owns is due; None: nothing is
    # What else was seen to wait, a hint each.
    unmatched: bool = False  # rows of `to_match` beyond `match_max`, or an event matched with a run that could not be woken yet
    wakes: bool = True  # `wakes` of the owner's runs: `pulse`
    closing: bool = True  # children to be closed: `close_children`
    alone: bool = True  # due runs that lost `alone_after` claims or more


class Owned(NamedTuple):
    """A run and the claim that its owner has on it."""

    key: int
    fence: int
    namespace: str
    id: str


@dataclass(slots=True)
class Freed:
    """What a sweep did."""

    dead: Sequence[str] = ()  # workers newly marked dead
    runs: int = 0  # runs freed from dead or unknown owners


@dataclass(slots=True)
class RunFilter:
    """Which runs a listing shows."""

    namespace: str
    workflow: str | None = None
    status: RunStatus | None = None
    attributes: dict[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])
    since: int | None = None  # created at or after, store µs
    until: int | None = None  # created before, store µs


@dataclass(slots=True)
class Listed(Generic[T]):
    """One page: in creation (arrival) order, stable while others are added or change."""

    items: Sequence[T]
    next: str | None  # cursor of the page after, None: there is none now


@dataclass(slots=True)
class StoredEvent:
    """An event as listings show it."""

    id: str
    name: str
    correlation_id: str
    payload: bytes
    received_at: int
    state: str  # unmatched | matched | consumed | bad
    late: bool
    run_id: str | None  # of the wait it is matched with or was consumed by


@dataclass(slots=True)
class StoredWait:
    """An open wait as listings show it."""

    run_id: str
    seq: int
    name: str
    correlation_id: str
    deadline: int | None
    shared: bool
    opened_at: int
    event_id: str | None  # matched with, not consumed yet


@dataclass(slots=True)
class Evidence:
    """A late or contradicting report: append-only, never applied on its own."""

    at: int
    kind: str  # late_transition | late_attempt | unread_attempt | …
    owner: str
    fence: int
    detail: str  # JSON


@dataclass(frozen=True, slots=True)
class OperationsServed:
    """Which operations a worker can send, look up and settle: of these pools and names, one recorded with a lookup only with a lookup."""

    pools: Sequence[str]
    names: Sequence[str]
    lookups: Sequence[str]  # of the names, those whose lookup it has
    aside: Sequence[int] = ()  # keys of operations that are left to others, and are not what is due next


@dataclass(slots=True)
class QueuedPool:
    """A pool in which attempts wait for a worker that serves it."""

    pool: str
    attempts: int
    due: int  # store µs: of the earliest
    unread: int = 0  # of them: given back by workers that could not read them
    unread_run: str | None = None  # ID of a run that awaits one of those


@dataclass(slots=True)
class TakenOperations:
    """Operations that were claimed to be settled."""

    rows: Sequence[OperationRow]
    next_due: int | None  # store µs; None: nothing else is due at a known time


class Lease(Protocol):
    """A worker's lease, kept on a connection of its own and called from the lease thread only."""

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        """Extend the lease by its length; False: the worker was marked dead, its claims are void.

        With it, in one statement, the leases of its *attempts* (`PoolAttempt.key`) that it still has claimed.

        Raises:
            StoreUnavailable: the store could not be reached; the lease runs on.
        """
        ...

    def remaining(self) -> int:
        """Return µs left by the last successful renewal (host's monotonic clock); negative once past."""
        ...

    def apply(self, transition: Transition) -> Verdict:
        """Write one transition from the lease thread, as `Store.apply` does: the loop is stuck in code that cannot be interrupted.

        Raises:
            BatchRejected, StoreUnavailable, CommitUnknown.
        """
        ...

    def close(self) -> None:
        """Close its connection."""
        ...


class Transaction(Protocol):
    """An open transaction of a transactional step: user writes first, the run's transition last."""

    connection: Any  # the driver's own connection, for the step's body

    async def ready(self) -> None:
        """Check, the body having ended, that nothing it did keeps the transaction from being committed; undo what it has set.

        Raises:
            Exception: something does; nothing was committed, unless `rollback` says so.
        """
        ...

    async def commit(self, transition: Transition) -> Verdict:
        """Write the guarded transition as the last statements and commit; REFUSED rolls everything back.

        Raises:
            BatchRejected, StoreUnavailable: rolled back. CommitUnknown: as for `Store.apply`.
        """
        ...

    async def rollback(self) -> bool:
        """Undo everything. Idempotent. False: the body had ended the transaction itself, so what it wrote may be committed."""
        ...


class Store(Protocol):
    """The contract every store keeps; `tests/store/conformance` is its proof."""

    url: str  # absolute, without a password
    hub: Hub  # in-process notices of this store object
    thread_transactions: bool  # whether the connection of a transaction can be used from a thread: by `def` steps

    # ---- life ------------------------------------------------------------------------------
    async def open(self) -> None:
        """Connect, verify the schema and migrate a new or older one.

        Raises:
            StoreUnavailable, StoreSchemaError, NotOurFile, ConfigurationError.
        """
        ...

    async def close(self) -> None:
        """Wait for what is being written, then disconnect. Idempotent."""
        ...

    async def now(self) -> int:
        """Return the store's clock, µs since the epoch."""
        ...

    def estimated_now(self) -> int:
        """Return the store's clock as last read, plus the time gone by since."""
        ...

    # ---- clients ---------------------------------------------------------------------------
    async def start(self, runs: Sequence[NewRun]) -> Sequence[Created | Existing]:
        """Create every run whose (namespace, ID) is free; concurrent calls are grouped into one commit."""
        ...

    async def send(self, events: Sequence[NewEvent]) -> Sequence[Received | EventClash | EventRefused]:
        """Store each event and queue it for matching; deduplicated by (namespace, event ID). Grouped as `start`.

        Refused are new ones beyond `UNMATCHED_MAX` that wait unmatched for one name and correlation ID.
        """
        ...

    async def change(self, namespace: str, run_id: str, decide: Callable[[Run, Generation, int], Next | None]) -> tuple[Run, Run] | None:
        """Read a run row, let *decide(run, its generation, store now)* say what it becomes, write that; atomic.

        Return the row before and after; None: no such run. *decide* is pure, may raise (nothing is written) and
        may return None (nothing to change: before and after are equal). A row whose owner stays gets a `wakes` row.
        With a terminal status the generation is ended, open waits closed as withdrawn and attempt rows deleted.
        With `begins` a generation follows and becomes the current one.
        """
        ...

    def using(self, connection: Any) -> Store:
        """Return a view that starts runs, sends events and changes rows in the caller's open transaction.

        Raises:
            ConfigurationError: not a connection of this store (SQLite: an apsw connection to the same file).
        """
        ...

    # ---- reads -----------------------------------------------------------------------------
    async def run(self, namespace: str, run_id: str) -> Run | None:
        """Return a run's row."""
        ...

    async def statuses(self, namespace: str, run_ids: Sequence[str]) -> Mapping[str, RunStatus]:
        """Return the status of each of these runs that is there, in one read."""
        ...

    async def record(self, namespace: str, run_id: str) -> Record | None:
        """Return a run's whole record without entries, in one consistent read."""
        ...

    async def generations(self, run: int) -> Sequence[Generation]:
        """Return every generation of a run, first to last, by Run.key."""
        ...

    async def history(self, generation: int, start: int, limit: int) -> Sequence[Entry]:
        """Return entries from position *start*, at most *limit*, in order."""
        ...

    async def runs(self, where: RunFilter, after: str | None, limit: int) -> Listed[Run]:
        """Return a page of runs in creation order."""
        ...

    async def events(self, namespace: str, matched: bool | None, after: str | None, limit: int) -> Listed[StoredEvent]:
        """Return a page of events in arrival order. *matched*: None all, False unmatched only, True the others."""
        ...

    async def waits(self, namespace: str, after: str | None, limit: int) -> Listed[StoredWait]:
        """Return a page of open waits, oldest first."""
        ...

    async def operation(self, namespace: str, operation_id: str) -> OperationRow | None:
        """Return an operation."""
        ...

    async def operations(
        self, namespace: str, state: OperationState | None, run: int | None, after: str | None, limit: int
    ) -> Listed[OperationRow]:
        """Return a page of operations in the order they were recorded. *run*: of that run (Run.key) only."""
        ...

    async def operation_notes(self, key: int) -> Sequence[OperationNote]:
        """Return an operation's history by OperationRow.key, oldest first."""
        ...

    async def workers(self, namespace: str) -> Sequence[WorkerRow]:
        """Return registered workers, `status` derived from their leases."""
        ...

    async def evidence(self, run: int) -> Sequence[Evidence]:
        """Return a run's evidence by Run.key, oldest first."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yield soon after other processes (or other connections here) have committed. May yield for nothing."""
        ...

    # ---- workers ---------------------------------------------------------------------------
    async def register(self, worker: WorkerRow, lease: int) -> Lease:
        """Insert the worker's row with a lease of *lease* µs from now and return its lease. Its `operating` is kept when it is gone."""
        ...

    async def deregister(self, worker_id: str) -> None:
        """Remove the row of a worker that owns nothing any more."""
        ...

    async def mark_stopping(self, worker_id: str) -> None:
        """Show in listings that the worker claims nothing any more."""
        ...

    async def reopen_held(self, namespace: str, serves: Sequence[tuple[str, str, str]], to: RunStatus) -> int:
        """Make runs held for their code claimable again where *serves* has a digest they have not excluded."""
        ...

    async def claim(self, request: ClaimRequest, to: RunStatus) -> Claims:
        """Claim due runs, oldest first, fairly between workflows: raise the fence, set owner, status *to* and started_at.

        First matches up to `match_max` queued events and waits, as `match` does, and turns `wakes` of unowned runs into due times, all
        in one commit: an event wakes its run without a commit in between. Never returns a run before its due time.
        """
        ...

    async def reclaim(self, run: int, owner: str, fence: int) -> Record | None:
        """Take a new fence on a run that *owner* still owns under *fence* and return its record; None: that claim is lost."""
        ...

    async def owned(self, owner: str) -> Sequence[Owned]:
        """Return every run that *owner* owns."""
        ...

    async def apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        """Write every transition whose guards hold, in one commit; the others are REFUSED and kept as evidence.

        A refused one whose ID is the row's `last_transition`, or stands in the journal, counts as APPLIED. One that needs rows which
        another transaction holds for longer than is waited for is LOCKED, with the others of its run: nothing of it is written or kept.

        Children are created in the same commit, those whose ID is taken left out: the parent's inbox has a message then. A run
        that ends with `Transition.child` puts its outcome into its parent's inbox, with a `wakes` row, if the parent is still in
        the generation that started it and has not ended. A run that parks while its inbox holds something is due at once.

        Operations are recorded in the same commit; one of `intents` that is there and not queued, or of `marks` that is not in the state
        it names (armed: under this claim), refuses the transition. So does a hold for review whose run has something in its inbox.
        A generation that ends withdraws its queued operations and awaits none of the others; its attempts in pools are deleted.

        Raises:
            BatchRejected: a statement raised; nothing was written.
            StoreUnavailable: nothing was written.
            CommitUnknown: COMMIT was sent and no answer came: resubmit the same transitions.
        """
        ...

    async def match(self, limit: int) -> int:
        """Match up to *limit* queued events and waits; return how many `to_match` rows were consumed."""
        ...

    async def pulse(self, owner: str) -> Sequence[Record]:
        """Take the `wakes` of runs that *owner* owns; return their records (waits with deposits, no entries)."""
        ...

    async def children(self, generation: int) -> Sequence[StartedChild]:
        """Return the children that a generation has started or taken over, in command order."""
        ...

    async def close_children(self, limit: int, decide: AskChild) -> int:
        """Carry out queued requests at up to *limit* children; return how many there were: as many as *limit* if more may be left.

        A generation that ended with `Transition.parent`, or by `change`, has its live children closed as each was started to be
        (`NewChild.on_close`), but for those to abandon: also one that the next generation has taken over before, and one that was asked
        earlier and that a person has retried since. One asked to "retry" has ended, and its parent is still in the generation that
        asked; where *decide* leaves it as it is, the parent is told how it ended. *decide* says what each row becomes, as for `change`.
        """
        ...

    async def operations_of(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations of a generation whose outcome its code awaits and its journal does not have, in command order."""
        ...

    async def open_operations(self, generation: int) -> Sequence[OperationRow]:
        """Return the operations of a generation, awaited or not, that may have been sent and are not settled, in command order."""
        ...

    async def take_operations(
        self, owner: str, namespace: str, serves: OperationsServed, limit: int, lost: OperationState | None
    ) -> TakenOperations:  # fmt: skip
        """Claim up to *limit* due operations for *owner*, the longest due of a pool first, under new fences; none that is queued.

        First, operations whose claim is over are given up: the run's own, once its run has another owner or fence; a worker's, once that
        is dead. An armed one becomes *lost*; all are due at once. That looks at every claim there is: with None it is left out.
        `TakenOperations.next_due` is when the next one is due.
        """
        ...

    async def take_queued(self, owner: str, namespace: str, serves: OperationsServed, limit: int) -> TakenOperations:
        """Claim up to *limit* due operations that are queued in the pools, as `take_operations` does; nothing is given up."""
        ...

    async def unserved_operations(
        self, namespace: str, served: Sequence[tuple[str, str, bool]], overdue: int, limit: int
    ) -> Sequence[OperationRow]:  # fmt: skip
        """Return up to *limit* unsettled operations that are due since *overdue* µs, of no claim and not *served*, the longest due first.

        *served*: (pool, name, whether the lookup is there) of every live worker. Neither queued ones are returned, nor held ones.
        """
        ...

    async def report(
        self, reports: Sequence[Report], decide: Callable[[OperationRow, Report, int], Decided], to: RunStatus
    ) -> Sequence[Decided | None]:
        """Read each report's operation, let *decide(row, report, store now)* say what it becomes, write that and a note; atomic.

        None: there is no operation of that ID; nothing is written.

        *decide* is pure and may raise: nothing is written then. A run that awaits the operation, in the generation that recorded it, gets a
        message in its inbox when it is settled (`About.OPERATION`), when it waits for a person and when it no longer does (`About.REVIEW`),
        with a `wakes` row; one held for review (`HoldKind.REVIEW`) gets status *to* and is due at once. Grouped as `start`.
        """
        ...

    async def pooled(self, generation: int) -> Sequence[PoolStanding]:
        """Return the attempts that a generation has in pools, in command order."""
        ...

    async def queued_pools(self, namespace: str) -> Sequence[QueuedPool]:
        """Return the pools of a namespace in which attempts wait to be claimed, by name."""
        ...

    async def take_pool(
        self, owner: str, namespace: str, names: Sequence[str], steps: Sequence[str], limit: int, lease: int, aside: Sequence[int] = ()
    ) -> TakenPool:  # fmt: skip
        """Claim up to *limit* due attempts at these *steps* in the pools of these *names* for *owner*, the longest due first.

        Each gets the fence greatest(fence + 1, store µs) and a lease of *lease* µs of its own, which `Lease.renew` extends.
        Those of the keys *aside* are left to others, and are not what is due next.
        Nothing is claimed for an owner that is marked dead.
        """
        ...

    async def beat_pool(self, beats: Sequence[PoolBeat]) -> Sequence[bool]:
        """Store signs of life; say of each attempt whether it is still claimed under that fence: False, its outcome is no longer wanted."""
        ...

    async def report_pool(self, reports: Sequence[PoolReport]) -> Sequence[bool | None]:
        """Put how attempts ended into their runs' inboxes (`About.POOL`) with a `wakes` row each; those accepted before count as accepted.

        False: it is no longer claimed under that fence; nothing changes, and the report is kept as evidence of its run (`late_attempt`).
        `PoolEnd.UNREAD` tells the run nothing: the attempt is queued again, due at once, and the detail kept as evidence
        (`unread_attempt`), once for each worker and up to the store's limit; too late, it leaves nothing.
        None: another transaction holds the attempt; nothing changes, and the same is to be reported again.
        """
        ...

    async def lose_pool(self, limit: int) -> int:
        """Give up to *limit* claimed attempts up whose lease is over or whose owner is dead or unknown; return how many.

        Each run is told (`PoolEnd.LOST`), and the fence raised, so that what the holder reports yet is late.
        """
        ...

    async def expire_events(self, kept: int, limit: int) -> int:
        """Delete up to *limit* events received more than *kept* µs ago, oldest first, and return how many; a matched one stays."""
        ...

    async def sweep(self, limit: int, to: RunStatus, *, alone_after: int = 3, pause: int = 1_000_000) -> Freed:
        """Mark workers dead whose lease is over or whose process is gone, then free up to *limit* runs of dead or unknown owners.

        Freeing raises the fence, adds one to `losses`, sets status *to* and makes the run due: at once, or, where it has
        lost *alone_after* claims or more without progress, after *pause* µs doubled by each loss beyond that, at most 64 times
        *pause*. `armed` stays, for the next claim to count its attempts as lost.
        """
        ...

    async def mark_dead(self, worker_id: str) -> None:
        """Mark a worker dead now (it fenced itself)."""
        ...

    async def keep_evidence(self, run: int, evidence: Evidence) -> None:
        """Append evidence, up to the store's limit per run."""
        ...

    async def restore(self, since: int | None = None) -> Restored:
        """Begin a new incarnation, in one commit, after the store was put back from a backup: nothing of before can write to it.

        Every worker is marked dead and every claim void; the fences of live runs, operations and attempts in pools go on beyond any that
        can have been given out since the backup. Operations that are not settled become what `core.restoring` says. Held are live runs
        that await one of these, and those of workflows that may call operations. Every live run that may have gone on is in doubt
        (`Record.doubt`), with the children it starts. *since*: store µs until when the backup has everything; None: its newest write.
        """
        ...

    async def trust(self) -> int:
        """Take the doubt of a restore from every run and return how many had it: operations are sent as usual again."""
        ...

    async def transaction(self) -> Transaction:
        """Begin a transaction for a transactional step; it holds the store's writer until it ends."""
        ...
