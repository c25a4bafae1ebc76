"""The execution record: a run's row, its generation, its journal, and what stands open beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from .machine import RunStatus
from .operations import OPEN, OperationRow
from .pools import PoolStanding


class Kind(StrEnum):
    """What a journal entry records. A store keeps the text."""

    STEP = "step"  # a step's outcome: value or failure
    TIMER = "timer"  # a timer fired
    WAIT = "wait"  # an event was consumed, or the wait's deadline passed (failed)
    CANCEL = "cancel"  # a cancel request was delivered; seq is the cancel_seq it answers
    PATCH = "patch"  # patched(name) was first asked with nothing of it recorded: body b"1" or b"0"
    STARTED = "started"  # a child was started for a handle: its run ID, or why it was not (failed)
    CHILD = "child"  # a child's outcome: its result, or how it ended otherwise (failed)
    CANCEL_CHILD = "cancel_child"  # the request to cancel a child is stored
    OPERATION = "operation"  # an operation's outcome: its result, or why there is none (failed)


ALONE: Final = "alone"  # Entry.info of a STEP that was recorded without having been delivered to the code


class Entry(NamedTuple):
    """One journal entry: immutable once committed."""

    position: int  # 0 is the generation's first
    kind: str  # a Kind
    seq: int  # the command it settles; for CANCEL the cancel_seq delivered
    name: str  # step, event or patch name; "" for timers
    attempt: int  # the attempt whose outcome this is, 1 the first; 0 where there is none
    at: int  # store time in µs, never less than the entry's before it
    failed: bool  # body is a failure (core.failures), not a value
    body: bytes  # encoded value or failure, after the App's codec
    digest: bytes  # 8 bytes over kind, name and arguments, keyed by the seed in force when it was asked for
    # WAIT: JSON [event ID, received_at µs, correlation ID, event name]; CHILD: [run ID, status];
    # OPERATION: [operation ID, state, sends, reason]; STEP: ALONE or ""
    info: str = ""
    fence: int = 0  # the claim that wrote it
    transition: int = 0  # the transition that wrote it


class Armed(NamedTuple):
    """An attempt that may have begun: the run row lists them, bounded by the worker's slots."""

    seq: int
    number: int  # the attempt's number, 1 the first
    digest: str  # the command's digest in hex
    name: str = ""  # the step's or operation's, for people


@dataclass(slots=True)
class AttemptRow:
    """One unfinished command that failed or was lost at least once. Written by the run's own transition."""

    seq: int
    digest: str  # the command's digest in hex
    number: int  # attempts made so far, lost ones included
    failures: int  # those that count against max_attempts
    losses: int  # those lost with a claim that was not alone
    due: int  # store µs: not armed again before
    error: bytes  # last failure (core.failures), b"" if lost
    heartbeat: bytes = b""  # last heartbeat details, encoded
    name: str = ""  # the step's or operation's, for people; "" in a row of before schema 4


@dataclass(slots=True)
class Run:
    """A run's row: the only row a transition is guarded on."""

    key: int  # the store's own row key, never shown to users
    namespace: str
    id: str
    workflow: str
    version: str
    status: RunStatus
    generation: int  # 1 the first; continue-as-new and retry begin another
    generation_key: int  # the store's own key of the current generation
    position: int  # next journal entry is written here
    revision: int  # grows with every guarded write
    owner: str | None  # worker ID, exactly while running
    fence: int  # greatest(fence + 1, store µs) at each claim; a write under another is refused
    cancel_seq: int  # cancel requests accepted so far in this generation
    cancel_reason: str
    last_transition: int  # ID of the last transition applied
    armed: str  # JSON [[seq, number, digest, name], …]: attempts that may have begun under the last claim
    losses: int  # claims lost without progress
    wake_at: int | None  # store µs: due time of a scheduled, pending or parked run; None while nothing is due
    priority: int
    digest: str  # "<python minor>:<code digest>" of the code that last advanced it, "" before
    excluded: str  # space-separated digests that did not fit, "" none
    hold_kind: str  # a HoldKind while held, else ""
    hold_reason: str  # for people, while held; after a cancel of a held run, until it ends or is held again: why it was
    deadline: int | None  # store µs: the run's own timeout
    attributes: str  # JSON object
    created_at: int
    started_at: int | None  # first claim of the generation, store µs
    updated_at: int
    finished_at: int | None
    depth: int = 0  # how many parents stand above it


@dataclass(slots=True)
class Generation:
    """What one pass of a run was given and what came of it: written at its start and its end only."""

    key: int
    number: int
    workflow: str
    version: str
    input: bytes  # encoded arguments {"name": value}, after the codec
    input_digest: bytes  # over the plaintext
    seeds: str  # JSON [[from position, seed hex], …], the first from 0
    started_at: int | None
    ended_at: int | None = None
    result: bytes | None = None  # encoded, once succeeded
    failure: bytes | None = None  # core.failures, once failed or cancelled
    timeout: int | None = None  # µs the run may take; `Run.deadline` goes on over its generations
    ended_by: int | None = None  # position of the outcome whose exception ended it


@dataclass(slots=True)
class Deposit:
    """An event that a wait of the run has been matched with."""

    event: int  # the store's arrival number
    event_id: str
    name: str
    correlation_id: str
    payload: bytes  # encoded, after the codec
    received_at: int  # store µs


@dataclass(slots=True)
class OpenWait:
    """A wait that the record holds open."""

    seq: int
    name: str
    correlation_id: str
    deadline: int | None  # store µs
    shared: bool
    include_late: bool
    deposit: Deposit | None = None


class About(StrEnum):
    """What a message in a run's inbox tells."""

    STARTED = "started"  # the child whose ID the code chose was created; info is its run ID
    CONFLICT = "conflict"  # the ID was taken; info is JSON, see `Taken`
    OPERATION = "operation"  # an operation of the run was settled; info JSON [operation ID, state, sends, reason]
    REVIEW = "review"  # an operation waits for a person: info is the reason; "": it no longer does
    POOL = "pool"  # an attempt in a pool ended: body as it was reported; info is JSON, see `pools.PoolTold`
    ENDED = "child"  # the child ended; body as its generation has it, info JSON [run ID, status]


class Message(NamedTuple):
    """What a run's inbox holds of one of its children, in the order it came."""

    key: int  # the store's own, named when it is taken
    about: str  # an About
    seq: int  # the command that started the child
    failed: bool
    body: bytes
    info: str


class Taken(NamedTuple):
    """The run that has the ID a child was to get: an info of `About.CONFLICT`, as JSON in this order."""

    run_id: str
    key: int
    own: bool  # a child of the same run, started by an earlier generation
    workflow: str  # of its first generation, as are the next two
    seeds: str
    input_digest: str  # hex
    status: str = ""  # a RunStatus


class StartedChild(NamedTuple):
    """A child that the record has as started by a generation."""

    seq: int
    run_id: str
    status: str
    on_close: str  # cancel | terminate | abandon; once it was asked to end so: closed | stopped


class Doubt(NamedTuple):
    """A run of before a restore: what it did after the backup is forgotten, and may have included the sends that it comes to now."""

    since: int  # store µs: the backup holds all that was committed until then
    restored_at: int  # store µs: nothing of before was committed later


@dataclass(slots=True)
class Record:
    """All that is needed to rebuild a run in memory."""

    run: Run
    generation: Generation
    entries: Sequence[Entry] = ()
    attempts: Sequence[AttemptRow] = ()
    waits: Sequence[OpenWait] = ()
    inbox: Sequence[Message] = ()  # the oldest, a bounded number
    parent: bool = False  # the generation has started children: `Store.children` lists them
    children: Sequence[StartedChild] = ()  # read by a worker before it rebuilds a parent
    operates: bool = False  # the generation has recorded operations: `Store.operations_of` lists those it awaits
    operations: Sequence[OperationRow] = ()  # read by a worker before it rebuilds such a run
    pooled: bool = False  # the generation has attempts in pools: `Store.pooled` lists them
    pool: Sequence[PoolStanding] = ()  # read by a worker before it rebuilds such a run
    doubt: Doubt | None = None  # the operations that it comes to may have been sent before a restore

    @property
    def unsettled(self) -> bool:
        """Return whether an operation that it awaits may have been sent, if they were read."""
        return any(row.state in OPEN for row in self.operations)


class HoldKind(StrEnum):
    """Why a run waits for a person: decides what may release it by itself."""

    CODE = "code"  # mismatch or undecodable: tried again when a worker with other code registers
    DEADLOCK = "deadlock"
    POISON = "poison"  # claims or attempts lost too often
    COMMIT = "commit"  # what the code asked for cannot be committed
    HUNG = "hung"  # the code did not give control back
    LIMIT = "limit"  # history limit reached
    REFUSED = "refused"  # I/O or nondeterminism in workflow code
    RESTORE = "restore"  # the store was put back from a backup, and the run may have sent operations since
    REVIEW = "review"  # nothing is left to do but to settle operations that wait for a person: settled, it goes on by itself


@dataclass(slots=True)
class WorkerRow:
    """One worker process, registered under a fresh ID at each start."""

    id: str
    namespace: str
    name: str  # for people: host and pid, or what was configured
    host: str
    boot: str
    pid: int
    pid_start: str
    pid_namespace: str
    workflows: str  # JSON [[name, version, digest], …]
    pools: str  # JSON [name, …]
    operations: str  # JSON [[name, whether it has a lookup], …]
    concurrency: int
    started_at: int  # store µs
    renewed_at: int  # store µs
    lease_until: int  # on the lease clock (monotonic µs of this boot on SQLite)
    dead: bool = False
    stopping: bool = False
    status: str = field(default="")  # derived for listings: live | stopping | dead
    operating: Sequence[tuple[str, str]] = ()  # (workflow, version) that may call operations; kept by the store for good
