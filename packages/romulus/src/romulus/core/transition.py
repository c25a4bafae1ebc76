"""The one atomic change of an execution record, and the smaller requests a store carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from .machine import Change, RunStatus
from .operations import NewIntent, OperationMark
from .pools import NewPoolAttempt
from .record import AttemptRow, Doubt, Entry, Generation, HoldKind, Run


@dataclass(slots=True)
class NewWait:
    """A wait to be opened; storing it also queues it for matching."""

    seq: int
    name: str
    correlation_id: str
    deadline: int | None  # store µs
    shared: bool = False
    include_late: bool = False


class Closing(Enum):
    """How a wait ends."""

    CONSUMED = "consumed"  # its event is in the journal now
    TIMED_OUT = "timed out"  # an event found there loses: back unmatched, marked late
    WITHDRAWN = "withdrawn"  # the code no longer awaits it: an event found there goes back unmatched
    BAD = "bad"  # its event did not fit the declared type: consumed as bad, the wait stays open


@dataclass(slots=True)
class CloseWait:
    """A wait to be closed by `DELETE … RETURNING event` (BAD: its event is taken off and the wait queued for matching again)."""

    seq: int
    how: Closing
    event: int | None = None  # arrival number, for CONSUMED and BAD


@dataclass(slots=True)
class NewChild:
    """A child to be created. Where its ID is taken, nothing is, and the parent's inbox gets a message about it."""

    run: NewRun
    seq: int  # the command that starts it
    on_close: str  # what becomes of it when its parent ends before it: cancel | terminate | abandon
    tell: bool = False  # also put into the inbox that it was started


@dataclass(slots=True)
class Attach:
    """A child of an earlier generation that becomes this one's; one that has ended is told of at once."""

    seq: int
    key: int  # its Run.key
    on_close: str
    again: bool = False  # how it ended is not told: its retry is asked for with the same transition


@dataclass(slots=True)
class CloseChild:
    """A request at a child whose parent goes on: queued, carried out by whoever comes first."""

    seq: int  # the command that started it
    how: str  # cancel | terminate | retry
    reason: str = ""


@dataclass(slots=True)
class CopyFrom:
    """A prefix of another generation's journal, copied with its stamps."""

    generation_key: int
    below: int  # entries with a smaller position


@dataclass(slots=True)
class NewGeneration:
    """The next pass of a run (continue-as-new, retry)."""

    workflow: str
    version: str
    input: bytes
    input_digest: bytes
    seeds: str  # JSON [[from position, seed hex], …]
    timeout: int | None = None
    copy: CopyFrom | None = None
    started_at: int | None = None  # kept where a journal is copied, so that time reads alike


@dataclass(slots=True)
class Transition:
    """One atomic, guarded change of a run's record.

    Guards: the run row must still have `owner`, `fence` and `revision`, `cancel_seq` where it is set, and the store's
    clock must have reached `not_before`. Everything below is written, or nothing.
    """

    id: int  # 63 random bits: recognises it when its commit's outcome was unknown
    run: int  # Run.key
    generation: int  # Run.generation_key
    run_id: str  # for messages
    owner: str
    fence: int
    revision: int  # guard; the row has revision + 1 afterwards
    change: Change
    status: RunStatus  # afterwards
    position: int  # afterwards
    armed: str  # afterwards
    entries: Sequence[Entry] = ()
    cancel_seq: int | None = None  # guard, set exactly for changes in machine.GUARDS_CANCEL
    not_before: int | None = None  # latest due time among the timers and deadlines it fires
    progressed: bool = False  # an outcome was recorded: claims lost without progress count from 0 again
    wake_at: int | None = None  # store µs: earliest due time of what a parked, freed or continued run waits for; 0 is "at once"
    digest: str = ""  # of the code that made it
    excluded: str | None = None  # new value of Run.excluded, None: unchanged
    attempts: Sequence[AttemptRow] = ()  # inserted or replaced by seq
    settled: Sequence[int] = ()  # seqs whose attempt rows are deleted
    opens: Sequence[NewWait] = ()
    closes: Sequence[CloseWait] = ()
    hold: tuple[HoldKind | Literal[""], str] | None = None  # "": not held, and this is the reason that Run.hold_reason keeps
    result: bytes | None = None
    failure: bytes | None = None
    ended_by: int | None = None  # position of the outcome whose exception ended the run
    begins: NewGeneration | None = None  # with Change.CONTINUE
    children: Sequence[NewChild] = ()
    attaches: Sequence[Attach] = ()
    closing: Sequence[CloseChild] = ()  # requests at children
    taken: Sequence[int] = ()  # keys of inbox messages: all of them are there, or the transition is refused
    attributes: str | None = None  # new value of Run.attributes, None: unchanged
    child: bool = False  # the run has a parent that is told when it ends
    parent: bool = False  # the generation has started children, or has an inbox
    intents: Sequence[NewIntent] = ()  # operations recorded, or armed: all of them, or the transition is refused
    marks: Sequence[OperationMark] = ()  # what its operations become: all of them, or the transition is refused
    forsaken: Sequence[int] = ()  # seqs of operations that the code no longer awaits
    operates: bool = False  # the generation has recorded operations
    pools: Sequence[NewPoolAttempt] = ()  # attempts to be queued in pools
    recalled: Sequence[int] = ()  # seqs whose attempts in pools are deleted: reported, or no longer awaited
    pooled: bool = False  # the generation has had attempts in pools


class Verdict(Enum):
    """What a store answers to one transition."""

    APPLIED = "applied"  # now, or before under the same transition ID
    REFUSED = "refused"  # a guard did not hold: nothing of it was written; kept as evidence
    LOCKED = "locked"  # another transaction holds rows that it needs: nothing of it was written; the same again later


@dataclass(slots=True)
class NewRun:
    """A run to be created."""

    namespace: str
    id: str
    workflow: str
    version: str
    status: RunStatus  # SCHEDULED or PENDING
    input: bytes
    input_digest: bytes
    seeds: str
    wake_at: int  # store µs it is due at; 0 is "at once"
    delay: int | None = None  # µs added to the store's clock instead of wake_at
    priority: int = 0
    timeout: int | None = None
    attributes: str = "{}"
    copy: CopyFrom | None = None  # fork
    started_at: int | None = None  # fork
    depth: int = 0  # of a child: its parent's and one more
    doubt: Doubt | None = None  # of a child: its parent's


@dataclass(slots=True)
class Created:
    """The run was created."""

    key: int


@dataclass(slots=True)
class Existing:
    """The ID was taken already; nothing was changed."""

    run: Run
    first: Generation  # generation 1, to compare workflow and arguments with


@dataclass(slots=True)
class NewEvent:
    """An arrival from outside."""

    namespace: str
    name: str
    correlation_id: str
    event_id: str
    payload: bytes  # encoded, after the codec
    digest: bytes  # over name, correlation ID and the payload's plaintext


@dataclass(slots=True)
class Received:
    """The event is stored (or was, under the same ID and body)."""

    event_id: str
    duplicate: bool


@dataclass(slots=True)
class EventClash:
    """The event ID was used with another body; nothing was stored."""

    event_id: str


@dataclass(slots=True)
class EventRefused:
    """As many events of its name and correlation ID as may wait do so already; nothing was stored."""

    event_id: str
    waiting_max: int


@dataclass(slots=True)
class Next:
    """What a person's change makes of a run row: see `Store.change`."""

    run: Run  # the row afterwards
    begins: NewGeneration | None = None  # retry
    failure: bytes | None = None  # of the generation that ends with it
