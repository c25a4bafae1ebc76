"""What listings and descriptions show: plain frozen values, the same for the library, the CLI's JSON and HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar, overload

from romulus.core.machine import RunStatus

T_co = TypeVar("T_co", covariant=True)
CancelReply: TypeAlias = Literal["accepted", "already_terminal"]


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """One thing a run awaits, as far as its record tells."""

    seq: int
    kind: str  # step | wait | child | operation
    name: str  # of a child its run ID; "" where a worker of an older release wrote it without
    attempt: int  # the last one, 1 the first; 0 where there are no attempts
    # armed | backing off | held (the step is tried again once its run is released) | open | matched; of a child its status; of an
    # operation as `OperationRecord` has it; in a pool queued | claimed | reported
    state: str
    since: datetime | None
    due: datetime | None  # of the next attempt, or the wait's deadline
    error: str | None = None  # of the attempt before, in one line; of an operation why it waits for a person
    pool: str | None = None  # whose workers work it
    owner: str | None = None  # worker ID: who has claimed it from the pool, or settles it
    heartbeat_at: datetime | None = None  # of an attempt in a pool
    unserved: bool = False  # no live worker serves its pool


@dataclass(frozen=True, slots=True)
class RunDescription:
    """Where a run stands."""

    id: str
    status: RunStatus
    position: int  # journal entries so far
    workflow: str
    version: str
    fence: int  # of the last claim
    owner: str | None  # worker ID while running
    pending: Sequence[PendingCommand]  # in listings: armed attempts only
    attributes: Mapping[str, Any]
    result: Any  # of a succeeded run, as JSON for people, without what its code marks Redacted; not in listings
    error: str | None  # of a failed run, in one line
    hold_reason: str | None  # why it is held; of a run that was cancelled while it was held: what kept it from cleaning up
    generation: int
    priority: int
    cancel_requests: int  # accepted in this generation
    cancel_reason: str | None  # of the last cancel request, or of the termination
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None
    due: datetime | None  # when a scheduled, pending or parked run goes on by itself
    deadline: datetime | None  # its own timeout
    stranded: bool  # unclaimed, and no live worker serves its workflow and version
    traceback: str | None = None  # of a failed run: where its code raised, as Python prints it; not in listings


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One recorded outcome."""

    position: int
    kind: str  # step | timer | wait | cancel | patch | started | child | cancel_child | operation
    name: str
    seq: int
    attempt: int
    fence: int  # of the claim that wrote it
    at: datetime
    value: Any  # as JSON for people; where the code is at hand, without what it marks Redacted
    error: str | None  # in one line, where the outcome is a failure
    event_id: str | None = None  # of a consumed event
    child_id: str | None = None  # run ID of the child whose outcome this is


@dataclass(frozen=True, slots=True)
class EventReceipt:
    """Proof that an event is stored."""

    id: str
    duplicate: bool  # the same event was stored before


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A stored event."""

    id: str
    name: str
    correlation_id: str
    payload: Any
    received_at: datetime
    state: str  # unmatched | matched | consumed | bad
    late: bool  # it lost to the deadline of the wait it was matched with
    run_id: str | None  # of that wait


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """An open wait."""

    run_id: str
    seq: int
    name: str
    correlation_id: str
    deadline: datetime | None
    shared: bool
    opened_at: datetime
    event_id: str | None  # matched with, not consumed yet


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A registered worker."""

    id: str
    name: str
    status: str  # live | stopping | dead
    host: str
    pid: int
    workflows: Sequence[str]  # "name version"
    pools: Sequence[str]
    concurrency: int
    started_at: datetime
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """An operation as listings show it."""

    id: str
    run_id: str
    name: str
    state: str  # queued | armed | unknown | resend | held | confirmed | rejected | not sent | abandoned | withdrawn
    sends: int  # how often it may have been sent
    seq: int  # of the command in its run
    hold_reason: str | None  # why it waits for a person, or why one gave it up
    awaited: bool  # its run's code awaits the outcome
    first_sent_at: datetime | None  # the earliest it can have left
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    due: datetime | None  # when a worker looks at it next
    idempotent: bool  # as declared when it was recorded
    has_lookup: bool
    pool: str  # whose workers send it and settle it
    workflow: str  # its run's


@dataclass(frozen=True, slots=True)
class OperationLine:
    """One line of an operation's history: a send without an answer, a lookup, a callback, a person's word."""

    at: datetime
    kind: str  # "conflict …": it contradicts the outcome
    who: str  # worker ID, reviewer or source
    state: str  # of the operation after it
    detail: Mapping[str, Any]
    value: Any = None  # as JSON for people
    error: str | None = None


@dataclass(frozen=True, slots=True)
class OperationDescription:
    """An operation with all that is known of it."""

    operation: OperationRecord
    arguments: Any  # as JSON for people; where the code is at hand, without what it marks Redacted
    history: Sequence[OperationLine]
    may_leave_until: datetime | None  # a send that was begun has left by then


@dataclass(frozen=True, slots=True)
class EvidenceRecord:
    """A late or contradicting report that was refused and kept."""

    at: datetime
    kind: str
    owner: str
    fence: int
    detail: Mapping[str, Any]


class Page(Sequence[T_co]):
    """One page of a listing, in creation order; `.next` is what to pass as `after=` for the page behind it."""

    __slots__ = ("_items", "next")

    def __init__(self, items: Sequence[T_co], next: str | None = None) -> None:  # noqa: A002 - the name it has after
        self._items = tuple(items)
        self.next: str | None = next

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self._items[index]

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._items)

    def __repr__(self) -> str:
        return f"Page({list(self._items)!r}, next={self.next!r})"
