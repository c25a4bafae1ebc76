"""The protocol of external operations: what may follow what, as one table, and the pure decisions over it.

    queued ─► armed ─► confirmed | rejected | not sent
                │ no definite answer
                ▼
             unknown ─► confirmed                      (it was applied)
                │  ├──► resend ─► armed                (it was not applied, or the provider knows the key)
                │  └──► held ─► confirmed | resend | abandoned   (a person says)
                │         └───► unknown                (a worker has its code again)
                ▲
    queued, armed, resend: after a restore, since all of them may have been sent in what was lost

Only an armed operation can have been sent. An unknown one is never sent again blindly: `next_step` says what is done instead.
A queued one waits for a slot of its run's worker or, where it names a pool, for any worker of that: that one's claim is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, TypeVar

from .duration import to_datetime
from .errors import OperationConflict
from .pools import DEFAULT_POOL
from .text import escaped

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WHY_MAX_CHARS: Final = 2_000  # of what a lookup or a callback says


class OperationState(StrEnum):
    """Where an operation stands."""

    QUEUED = "queued"  # recorded, nothing was sent
    ARMED = "armed"  # whoever has its claim may send it now
    UNKNOWN = "unknown"  # it may have been applied: to be looked up
    RESEND = "resend"  # to be sent again under the same ID
    HELD = "held"  # waits for a person
    CONFIRMED = "confirmed"  # applied, its result is known
    REJECTED = "rejected"  # the provider refused it
    NOT_SENT = "not sent"  # it never left, and its attempts are used up
    ABANDONED = "abandoned"  # a person gave up: whether it was applied is not known
    WITHDRAWN = "withdrawn"  # the code gave it up before anything was sent


class OperationEvent(StrEnum):
    """What can happen to an operation. The value reads after "an operation that is … cannot"."""

    ARM = "be sent"  # a slot is reserved, its claim is live
    DISARM = "be un-armed"  # nothing of it began, or it raised NotSent with attempts left
    SUCCEED = "succeed"
    REJECT = "be rejected"  # it raised Rejected
    NEVER_LEAVE = "end unsent"  # it raised NotSent, attempts used up
    LOSE = "become unknown"  # any other exception, a timeout, a crash, a lost claim
    FIND_APPLIED = "be found applied"  # by a lookup, or by evidence
    SEND_AGAIN = "be sent again"  # found not applied, or the provider knows the key
    HOLD = "be held"  # nothing but a person can tell, or no worker has its code
    TAKE_UP = "be taken up again"  # it was held because no worker had its code
    RESOLVE_APPLIED = "be resolved as applied"
    RESOLVE_NOT_APPLIED = "be resolved as not applied"
    GIVE_UP = "be given up"
    WITHDRAW = "be withdrawn"  # the code no longer awaits it
    DOUBT = "be put in doubt"  # the store was put back from a backup: it may have been sent since


S, E = OperationState, OperationEvent
UNSETTLED: Final = (S.UNKNOWN, S.RESEND, S.HELD)
OPEN: Final = frozenset({S.ARMED, *UNSETTLED})  # it may have been sent
SETTLED: Final = frozenset({S.CONFIRMED, S.REJECTED, S.NOT_SENT, S.ABANDONED, S.WITHDRAWN})


def _from(*sources: OperationState, to: OperationState) -> Mapping[OperationState, OperationState]:
    return dict.fromkeys(sources, to)


TABLE: Mapping[OperationEvent, Mapping[OperationState, OperationState]] = MappingProxyType(
    {
        E.ARM: _from(S.QUEUED, S.RESEND, to=S.ARMED),
        E.DISARM: _from(S.ARMED, to=S.QUEUED),
        E.SUCCEED: _from(S.ARMED, to=S.CONFIRMED),
        E.REJECT: _from(S.ARMED, to=S.REJECTED),
        E.NEVER_LEAVE: _from(S.ARMED, to=S.NOT_SENT),
        E.LOSE: _from(S.ARMED, to=S.UNKNOWN),
        E.FIND_APPLIED: _from(S.ARMED, *UNSETTLED, to=S.CONFIRMED),  # armed: a first send's late success meets the second
        E.SEND_AGAIN: _from(S.UNKNOWN, S.HELD, to=S.RESEND),  # held: it was to be sent again when its code was gone
        E.HOLD: _from(S.UNKNOWN, S.RESEND, to=S.HELD),
        E.TAKE_UP: _from(S.HELD, to=S.UNKNOWN),
        E.RESOLVE_APPLIED: _from(*UNSETTLED, to=S.CONFIRMED),
        E.RESOLVE_NOT_APPLIED: _from(S.UNKNOWN, S.HELD, to=S.RESEND),
        E.GIVE_UP: _from(*UNSETTLED, to=S.ABANDONED),
        E.WITHDRAW: _from(S.QUEUED, to=S.WITHDRAWN),
        E.DOUBT: _from(S.QUEUED, S.ARMED, S.UNKNOWN, S.RESEND, to=S.UNKNOWN),
    }
)


class Ending(StrEnum):
    """How the body of an armed operation can end."""

    RETURNED = "it returned"
    REJECTED = "it raised Rejected"
    NOT_SENT = "it raised NotSent, attempts left"
    NOT_SENT_LAST = "it raised NotSent, the last attempt"
    RAISED = "it raised anything else, or its result cannot be stored"
    TIMEOUT = "it ran past its timeout"
    CANCELLED = "it was cancelled while sending"
    KILLED = "its worker was killed, stopped or cut off before the outcome was committed"
    UNBEGUN = "it was un-armed: the lease ran short, or the worker was stopped, before it began"


# What each ending becomes: the one table. `docs/guarantees.md` shows it and `tests/core/test_operations.py` walks it.
ENDINGS: Mapping[Ending, OperationEvent] = MappingProxyType(
    {
        Ending.RETURNED: E.SUCCEED,
        Ending.REJECTED: E.REJECT,
        Ending.NOT_SENT: E.DISARM,
        Ending.NOT_SENT_LAST: E.NEVER_LEAVE,
        Ending.RAISED: E.LOSE,
        Ending.TIMEOUT: E.LOSE,
        Ending.CANCELLED: E.LOSE,
        Ending.KILLED: E.LOSE,
        Ending.UNBEGUN: E.DISARM,
    }
)


def after(state: OperationState, event: OperationEvent, operation_id: str = "") -> OperationState:
    """Return the state that *event* leads to from *state*.

    Raises:
        OperationConflict: the state does not accept the event.
    """
    try:
        return TABLE[event][state]
    except KeyError:
        raise OperationConflict(operation_id, f"is {state} and cannot {event}") from None


# ---- what is stored -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Protocol:
    """What was declared of the provider when the intent was recorded: a later deploy does not change it."""

    idempotent: bool  # the provider applies the same key once
    key_lifetime: int | None  # µs from the first send; None: for ever
    settle: int  # µs after which a write shows in lookups
    timeout: int  # µs for one send
    has_lookup: bool


@dataclass(slots=True)
class NewIntent:
    """An operation to be recorded by its run's transition, or a queued one to be armed."""

    seq: int
    id: str
    name: str
    digest: str  # the command's digest in hex
    arguments: bytes  # after the codec
    protocol: Protocol
    state: OperationState  # QUEUED or ARMED; UNKNOWN where it may have been sent before a restore
    may_leave_until: int  # store µs: a send begun under this claim has left by then; 0 while queued
    since: int | None = None  # store µs, with UNKNOWN: it was not sent before
    pool: str = DEFAULT_POOL  # whose workers send it and settle it
    position: int = 0  # entries that the code had seen when it asked


@dataclass(slots=True)
class OperationMark:
    """What an operation becomes by its run's own transition. Guard: its state, and while armed the run's claim."""

    seq: int
    before: OperationState
    state: OperationState
    due: int | None = None  # store µs: when it is settled further; None: nothing is to do
    error: bytes = b""  # the failure that made it unknown (core.failures), after the codec
    seen_applied: bool = False  # the provider took it, although its result cannot be stored
    awaited: bool = True  # the code still awaits it


@dataclass(slots=True)
class OperationRow:
    """An operation's row: a record of its own, settled also after its run has ended."""

    key: int  # the store's own, never shown
    id: str
    namespace: str
    run: int  # Run.key
    run_id: str
    workflow: str  # its run's, and its version
    version: str
    generation: int  # Run.generation_key
    seq: int
    name: str
    digest: str
    arguments: bytes
    pool: str  # whose workers send it and settle it; the default one: its run's own worker sends it
    protocol: Protocol
    state: OperationState
    sends: int  # how often it was armed and not un-armed
    owner: str | None  # worker ID, while it is claimed
    fence: int  # of the last claim: a report under another is evidence
    by_run: bool  # the claim is the run's own; else a worker's that settles it, or of its pool
    first_sent_at: int | None  # store µs: the earliest it can have been sent
    may_leave_until: int  # store µs
    due: int | None  # store µs: when a worker looks at it next; while held: it is for the lack of its code
    looks: int  # lookups without an answer since the last that gave one, or sends that never left
    cleared: bool  # RESEND and armed from it: known not to have been applied, so that it needs no key
    seen_applied: bool  # the provider took it, although no result is known
    awaited: bool  # its run's code awaits the outcome
    hold_reason: str
    failed: bool
    body: bytes  # the outcome, where it was not the run's own transition that recorded it
    created_at: int
    updated_at: int
    ended_at: int | None
    doubted: bool = False  # its first send is none that this record knows: it may have been made before a restore
    position: int = 0  # entries that the code had seen when it asked


@dataclass(slots=True)
class OperationNote:
    """One line of an operation's history: append-only, never applied on its own."""

    at: int
    kind: str  # a ReportKind, "lost", or "conflict" in front of the kind that contradicts the outcome
    who: str  # worker ID, reviewer or callback source
    state: str  # after it
    detail: str  # JSON
    body: bytes  # encoded value or failure, after the codec


# ---- what is reported ------------------------------------------------------------------------------


class ReportKind(StrEnum):
    """Where a report comes from and what it says."""

    ARMED = "armed"  # a worker is about to send it again
    SENT = "sent"  # the send returned: body is the result
    REJECTED = "rejected"  # body is what is raised
    NOT_SENT = "not sent"
    NO_ANSWER = "no answer"  # body is the failure
    UNBEGUN = "un-armed"  # the send was not begun
    LOOKED_APPLIED = "lookup: applied"
    LOOKED_ABSENT = "lookup: not applied"
    LOOKED_UNKNOWN = "lookup: unknown"
    LOOKED_WRONG = "lookup: wrong"  # it gave what cannot be a result, or there is no lookup any more
    CALLED_APPLIED = "callback: applied"
    CALLED_ABSENT = "callback: not applied"
    CALLED_UNKNOWN = "callback: unknown"
    EXCHANGE = "exchange"  # what went over the wire, redacted: never more than evidence
    KEY = "send under the key"  # nothing can be asked, the provider knows the key
    STUCK = "nothing to ask"  # nothing can be asked, and no key has room
    NO_CODE = "no code"  # no live worker has its function, its lookup or its pool
    CODE_BACK = "code is back"
    RESOLVED_APPLIED = "resolved: applied"
    RESOLVED_ABSENT = "resolved: not applied"
    GIVEN_UP = "resolved: given up"


R = ReportKind
_SENDER = frozenset({R.ARMED, R.SENT, R.REJECTED, R.NOT_SENT, R.NO_ANSWER, R.UNBEGUN})
_MAY_BE_SENT = (S.ARMED, S.UNKNOWN)
_POSITIVE = frozenset({R.SENT, R.LOOKED_APPLIED, R.CALLED_APPLIED})
_NEGATIVE = frozenset({R.REJECTED, R.LOOKED_ABSENT, R.CALLED_ABSENT})
_HEARD: Mapping[OperationState, tuple[ReportKind, ...]] = MappingProxyType({S.QUEUED: (R.ARMED,), S.HELD: (R.CODE_BACK,)})  # else all
_PEOPLE: Mapping[ReportKind, OperationEvent] = MappingProxyType(
    {R.RESOLVED_APPLIED: E.RESOLVE_APPLIED, R.RESOLVED_ABSENT: E.RESOLVE_NOT_APPLIED, R.GIVEN_UP: E.GIVE_UP}
)


@dataclass(slots=True)
class Report:
    """Something that was learned of an operation, or a person's word on it."""

    namespace: str
    id: str  # operation ID
    kind: ReportKind
    who: str
    fence: int = 0  # of the claim it was made under; 0: under none
    body: bytes = b""  # the outcome to record, or the failure; after the codec
    detail: str = "{}"  # JSON, for the history
    retry_at: int | None = None  # store µs: when to go on if this gave no answer; None: tries are used up
    why: str = ""  # for the reason of a hold
    may_leave_until: int = 0  # with ARMED
    note: bytes = b""  # kept in the history instead of the body
    applied: bool = False  # the provider took it, although this gives no result
    last: bool = False  # with NOT_SENT: its attempts are used up


@dataclass(slots=True)
class Decided:
    """What a report makes of a row, and under which kind the history has it."""

    row: OperationRow
    kind: str
    changed: bool  # else the row stays as it is, and the report is evidence


def decide(row: OperationRow, report: Report, now: int) -> Decided:
    """Return what *report* makes of *row*: the one place where reports race; the loser is evidence.

    Raises:
        OperationConflict: a person's word that comes too late; nothing is changed.
    """
    if report.kind is R.EXCHANGE:
        return Decided(row, report.kind, changed=False)
    if report.kind in _PEOPLE:
        cleared = replace(row, cleared=report.kind is R.RESOLVED_ABSENT, fence=row.fence + 1)  # a claim on it is over
        return _moved(cleared, report, after(row.state, _PEOPLE[report.kind], row.id), now, body=report.body)
    if row.state in SETTLED:
        return _too_late(row, report)
    if report.kind in _POSITIVE and row.state is not S.QUEUED:
        return _moved(row, report, after(row.state, E.FIND_APPLIED), now, body=report.body)
    if report.fence != row.fence or report.kind not in _HEARD.get(row.state, ReportKind):
        return Decided(row, report.kind, changed=False)
    return _by_sender(row, report, now) if report.kind in _SENDER else _by_settler(row, report, now)


def _by_sender(row: OperationRow, report: Report, now: int) -> Decided:
    """Take what the holder of the last claim says of its own send; its claim may be over, but nobody has had another since."""
    match report.kind:
        case R.ARMED if row.by_run or row.owner != report.who:
            return Decided(row, report.kind, changed=False)  # whoever it was claimed for is dead
        case R.ARMED if row.state is S.ARMED:
            return Decided(row, report.kind, changed=True)  # told before: the commit's answer was lost
        case R.ARMED if row.state in (S.QUEUED, S.RESEND):
            armed = replace(
                row, sends=row.sends + 1, first_sent_at=row.first_sent_at or now,
                may_leave_until=max(row.may_leave_until, report.may_leave_until),
            )  # fmt: skip
            return _moved(armed, report, after(row.state, E.ARM), now, keep_claim=True)
        case R.REJECTED if row.state in _MAY_BE_SENT:
            return _moved(row, report, S.REJECTED, now, body=report.body, failed=True)
        case R.NOT_SENT | R.UNBEGUN if row.state in _MAY_BE_SENT:
            return _never_left(row, report, now)
        case R.NO_ANSWER if row.state is S.ARMED:
            return _moved(replace(row, looks=0), report, after(row.state, E.LOSE), now, due=report.retry_at or now)
        case _:
            return Decided(row, report.kind, changed=False)


def _never_left(row: OperationRow, report: Report, now: int) -> Decided:
    """Take the last send back: nothing of it left. Whether an earlier one was applied is as it was."""
    sends, tried = row.sends - 1, report.kind is R.NOT_SENT
    first, looks = row.first_sent_at if sends else None, row.looks + 1 if tried else row.looks
    unsent = replace(row, sends=sends, first_sent_at=first, looks=looks, cleared=row.cleared or not sends)
    if sends == 0 and tried and (report.last or not row.awaited):
        return _moved(unsent, report, S.NOT_SENT, now, body=report.body, failed=True)
    if sends == 0 and row.pool != DEFAULT_POOL and row.state is S.ARMED:
        queued = after(row.state, E.DISARM)
        if not row.awaited:
            return _moved(unsent, report, after(queued, E.WITHDRAW), now)
        return _moved(unsent, report, queued, now, due=report.retry_at or now)
    return _moved(unsent, report, S.RESEND, now, due=report.retry_at or now)


def _by_settler(row: OperationRow, report: Report, now: int) -> Decided:
    """Take what the worker that settles *row* has learned."""
    if row.state is S.ARMED or (row.state is S.RESEND and report.kind not in (R.STUCK, R.NO_CODE)):
        return Decided(row, report.kind, changed=False)
    match report.kind:
        case R.NO_CODE if row.owner is None and row.due is not None and row.due <= now:
            return _held(row, report, now, report.why, due=row.due)
        case R.CODE_BACK if row.state is S.HELD:
            return _moved(row, report, after(row.state, E.SEND_AGAIN if row.cleared else E.TAKE_UP), now, due=now)
        case R.LOOKED_ABSENT if now < believable_at(row):
            return _moved(replace(row, looks=0), report, row.state, now, due=believable_at(row))
        case R.LOOKED_ABSENT if row.seen_applied:
            return _held(row, report, now, "its lookup finds nothing, but the provider had taken it")
        case R.LOOKED_ABSENT if report.retry_at is not None:
            return _moved(replace(row, cleared=True), report, after(row.state, E.SEND_AGAIN), now, due=report.retry_at)
        case R.LOOKED_ABSENT:
            return _held(row, report, now, f"its lookup finds nothing, and it was sent {_times(row.sends)} already")
        case R.KEY:
            return _moved(replace(row, looks=0), report, after(row.state, E.SEND_AGAIN), now, due=report.retry_at or now)
        case R.LOOKED_UNKNOWN if report.retry_at is not None:
            return _moved(replace(row, looks=row.looks + 1), report, row.state, now, due=report.retry_at)
        case R.LOOKED_UNKNOWN | R.LOOKED_WRONG | R.STUCK:
            return _held(row, report, now, report.why)
        case _:
            return Decided(row, report.kind, changed=False)


def _too_late(row: OperationRow, report: Report) -> Decided:
    """Keep a report on a settled operation; one that contradicts the outcome is flagged."""
    applied = row.state is S.CONFIRMED
    known = row.state in (S.CONFIRMED, S.REJECTED, S.NOT_SENT)
    contradicts = known and (report.kind in _NEGATIVE if applied else report.kind in _POSITIVE)
    return Decided(row, f"conflict {report.kind}" if contradicts else report.kind, changed=False)


# A person's reason for giving up stays with the operation: the workflow is told of it.
def _moved(
    row: OperationRow, report: Report, state: OperationState, now: int, *,
    due: int | None = None, body: bytes = b"", failed: bool = False, keep_claim: bool = False,
) -> Decided:  # fmt: skip
    if state is S.RESEND and due is None:
        due = now
    return Decided(
        replace(
            row, state=state, due=due, body=body, failed=failed or state is S.ABANDONED,
            hold_reason=report.why if state is S.ABANDONED else "",
            owner=row.owner if keep_claim else None, seen_applied=row.seen_applied or report.applied,
            cleared=row.cleared and (state in (S.RESEND, S.ARMED) or report.kind is R.NO_CODE),
            updated_at=now, ended_at=now if state in SETTLED else None,
        ),
        report.kind, changed=True,
    )  # fmt: skip


def _held(row: OperationRow, report: Report, now: int, why: str, due: int | None = None) -> Decided:
    decided = _moved(row, report, after(row.state, E.HOLD, row.id), now, due=due)
    decided.row.hold_reason = hold_reason(row, why)
    return decided


# ---- what to do about an unknown one ----------------------------------------------------------------


class Step(StrEnum):
    """What a worker does next about an operation that is due."""

    LOOK = "look"
    SEND = "send"
    KEY = "send under the key"
    HOLD = "hold"
    TAKE_UP = "take up again"


def next_step(row: OperationRow, now: int, sends_max: int | None) -> Step:
    """Return what is done about *row*, which is due: the order of DESIGN 7."""
    if row.state is S.QUEUED:
        return Step.SEND
    if row.state is S.HELD:
        return Step.TAKE_UP
    if row.state is S.RESEND:
        return Step.SEND if row.cleared or key_has_room(row, now) else Step.HOLD
    if row.protocol.has_lookup:
        return Step.LOOK
    return after_silence(row, now, sends_max)


def after_silence(row: OperationRow, now: int, sends_max: int | None) -> Step:
    """Return what is done where nobody can be asked, or no answer came."""
    left = sends_max is None or row.sends < sends_max
    return Step.KEY if left and key_has_room(row, now) else Step.HOLD


def key_has_room(row: OperationRow, now: int) -> bool:
    """Return whether a send that begins now ends within the lifetime of the provider's key."""
    protocol = row.protocol
    if not protocol.idempotent:
        return False
    return protocol.key_lifetime is None or now + protocol.timeout <= (row.first_sent_at or now) + protocol.key_lifetime


def believable_at(row: OperationRow) -> int:
    """Return when "not found" is believed: every send that was begun has left and shows by then."""
    return max(row.may_leave_until, (row.first_sent_at or 0) + row.protocol.timeout) + row.protocol.settle


def hold_reason(row: OperationRow, why: str) -> str:
    """Return in plain words what was sent, when, what is known, and what the choices do."""
    return (
        f"operation {row.name!r} (ID {row.id}) {_sent(row)}, and whether the provider applied it is not known: {why}. "
        "Look it up at the provider, then `romulus operations resolve`: applied (with the result) records it, not-applied sends it again "
        "under the same ID, give-up raises OperationAbandoned in the workflow"
    )


def why_stuck(protocol: Protocol, sends: int) -> str:
    """Return why nothing but a person can settle an operation that gave no answer."""
    if not protocol.idempotent:
        return "it has no lookup that answers, and the provider promises no idempotency key"
    if protocol.key_lifetime is None:
        return f"it was sent {_times(sends)} under its key without an answer"
    return f"it was sent {_times(sends)} without an answer, and its key's lifetime leaves no room for another send"


def _sent(row: OperationRow) -> str:
    first = "at no known time" if row.first_sent_at is None else f"about {to_datetime(row.first_sent_at):%Y-%m-%d %H:%M:%S} UTC"
    if not row.doubted:
        return f"was sent {_times(row.sends)}, first {first}"
    since = f", and was sent {_times(row.sends - 1)} after that" if row.sends > 1 else ""
    return f"may have been sent, {first} or later, before the store was put back from a backup{since}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


# ---- what people and lookups say --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied(Generic[T_co]):
    """The provider has applied it; *value* is the operation's result."""

    value: T_co


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The provider has not applied it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The provider cannot say."""

    reason: str = ""

    @property
    def words(self) -> str:
        """The reason as it is kept, whatever the code gave: at most 2,000 characters."""
        reason: object = self.reason
        if not isinstance(reason, str):
            return f"(a reason of type {type(reason).__name__})"
        return escaped(reason[:WHY_MAX_CHARS]) or "no reason given"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A reviewer's word: leave it, whether it was applied or not. The workflow gets `OperationAbandoned`."""


LookupResult: TypeAlias = Applied[T] | NotApplied | Unknown


@dataclass(frozen=True, slots=True)
class Callback(Generic[T_co]):
    """What a provider's signed callback says of one operation; kept as evidence."""

    operation_id: str
    outcome: Applied[T_co] | NotApplied | Unknown
