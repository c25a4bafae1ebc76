"""A run's own operations: recorded as intents with its transitions, armed where a slot is free, and what each ending makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from romulus.authoring.operation import Operation
from romulus.core.attempts import after_failure
from romulus.core.commands import Command, OperationCall
from romulus.core.duration import to_datetime
from romulus.core.errors import Mismatch, SerializationError
from romulus.core.operations import (
    ENDINGS,
    SETTLED,
    Ending,
    NewIntent,
    OperationEvent,
    OperationMark,
    OperationRow,
    OperationState,
    Protocol,
    after,
)
from romulus.core.pools import DEFAULT_POOL
from romulus.core.record import About, AttemptRow, Entry, HoldKind, Message, Record
from romulus.core.restoring import may_leave_until
from romulus.worker import family, holding
from romulus.worker.draft import Draft
from romulus.worker.engine import OperationEnded, Work
from romulus.worker.entries import entry_of, record

from .sending import Send, Sent

if TYPE_CHECKING:
    from romulus.core.transition import Transition
    from romulus.worker.driver import RunDriver

S, E = OperationState, OperationEvent


@dataclass(slots=True, eq=False)
class Tracked:
    """An operation that the run's code awaits."""

    command: Command
    arguments: bytes  # sealed
    state: OperationState = OperationState.QUEUED  # as far as the run knows: QUEUED, ARMED or UNKNOWN
    recorded: bool = False  # the record has it
    may_leave_until: int = 0  # store µs, while armed
    review: str = ""  # why it waits for a person
    pooled: bool = False  # workers of its pool send it: whether one has, only the record tells

    @property
    def call(self) -> OperationCall:
        """What is to be done."""
        return cast("OperationCall", self.command.detail)


# ---- what the code asks for -------------------------------------------------------------------------


def issued(driver: RunDriver, command: Command) -> None:
    """Queue an operation; one whose arguments cannot be stored has failed."""
    call = cast("OperationCall", command.detail)
    try:
        sealed = driver.engine.registry.vault.seal(call.spec.arguments.marked(call.arguments), f"arguments of operation {command.name!r}")
    except SerializationError as error:
        family.refuse(driver, command, error)
        return
    pooled = call.spec.pool is not None
    tracked = driver.operations[command.seq] = Tracked(command, sealed, pooled=pooled)
    if driver.unsure is not None:  # before the restore it may have come here as well, and sent it: found out before anything is sent
        tracked.state = after(tracked.state, E.DOUBT)
    elif not pooled:
        driver.queued.append(command)


def armed(driver: RunDriver, draft: Draft, work: Work) -> None:
    """Arm an operation as part of the draft: a send begun under this claim has left by the end of a lease and its timeout."""
    tracked = driver.operations[work.command.seq]
    lease = driver.engine.settings.lease
    tracked.may_leave_until = driver.engine.store.estimated_now() + lease + tracked.call.spec.timeout
    tracked.state = after(tracked.state, E.ARM)
    _intend(driver, draft, tracked)


def record_queued(driver: RunDriver, draft: Draft) -> bool:
    """Record the operations that found no slot or wait for a pool, as many as one transition may have; return whether more are left."""
    room = driver.engine.settings.turn_intents_max
    for seq, tracked in driver.operations.items():
        if not tracked.recorded and seq not in draft.intents:
            if len(draft.intents) >= room:
                return True
            _intend(driver, draft, tracked)
    return False


def withdrawn(driver: RunDriver, draft: Draft, command: Command) -> None:
    """The code no longer awaits it: nothing is sent of a queued one; any other goes on as a record of its own."""
    tracked = driver.operations.pop(command.seq, None)
    if tracked is None:
        return
    if draft.intents.pop(command.seq, None) is None and tracked.recorded and tracked.state is S.QUEUED:
        draft.withdraw(command.seq)
    elif tracked.state is not S.QUEUED:
        draft.abandoned.append(command.seq)
        draft.changed = True


def unarm(driver: RunDriver, draft: Draft, work: Work) -> None:
    """Take back the arming of an operation whose body never began."""
    tracked = driver.operations[work.command.seq]
    tracked.state = after(tracked.state, E.DISARM)
    draft.mark(OperationMark(work.command.seq, S.ARMED, tracked.state))


def _intend(driver: RunDriver, draft: Draft, tracked: Tracked) -> None:
    command, call = tracked.command, tracked.call
    spec = call.spec
    protocol = Protocol(spec.idempotent, spec.key_lifetime, spec.settle, spec.timeout, spec.extras.lookup is not None)
    leave = tracked.may_leave_until if tracked.state is S.ARMED else 0
    intent = NewIntent(
        command.seq, call.id, command.name, command.digest.hex(), tracked.arguments, protocol, tracked.state, leave,
        pool=spec.pool or DEFAULT_POOL, position=call.position,
    )  # fmt: skip
    if tracked.state is S.UNKNOWN and driver.unsure is not None:
        intent.since, intent.may_leave_until = driver.unsure.since, may_leave_until(spec.timeout, driver.unsure)
    draft.intend(intent)
    tracked.recorded = True
    driver.operates = True


# ---- sending ----------------------------------------------------------------------------------------


def begin(work: Work) -> None:
    """Send an operation whose arming is durable, after a last check of the lease; else have it un-armed."""
    driver, engine = work.driver, work.driver.engine
    tracked = driver.operations[work.command.seq]
    spec, now = tracked.call.spec, engine.store.estimated_now()
    latest = tracked.may_leave_until - spec.timeout
    work.begun = True
    fence = driver.run.fence
    send = Send(
        spec, Operation(tracked.call.id, work.number, fence, to_datetime(now)), tracked.call.arguments, driver.instance.info,
        work.command.seq, tracked.call.context.copy(),
        may_leave=lambda: engine.owner.may_arm() and engine.store.estimated_now() < latest,
        ended=lambda sent: _ended(work, sent, lambda: engine.operations.late(send, fence, sent)),
        late=lambda sent: engine.operations.late(send, fence, sent), free=lambda: _free(work),
    )  # fmt: skip
    engine.executor.running.add(work)
    engine.operations.sender.begin(send)
    work.handle = send.handle


def _free(work: Work) -> None:
    engine = work.driver.engine
    engine.executor.running.discard(work)
    engine.slots.give()


def _ended(work: Work, sent: Sent, late: Callable[[], object]) -> None:
    """Tell the run how the send ended, or the store where the run no longer waits for it."""
    if work.withdrawn:
        late()
        return
    row = _next_attempt(work, sent) if sent.ending is Ending.NOT_SENT else None
    ending = Ending.NOT_SENT_LAST if sent.ending is Ending.NOT_SENT and row is None else sent.ending
    work.driver.arrive(OperationEnded(work, ending, sent.body, sent.value, row, sent.applied, late))


def _next_attempt(work: Work, sent: Sent) -> AttemptRow | None:
    engine, command = work.driver.engine, work.command
    assert sent.error is not None
    return after_failure(
        cast("OperationCall", command.detail).spec.retry, work.row, command.seq, command.digest.hex(), work.number, sent.body,
        sent.error, engine.store.estimated_now(), engine.random01(), name=command.name,
    )  # fmt: skip


# ---- what is delivered to the run -------------------------------------------------------------------


def ended(driver: RunDriver, draft: Draft, delivery: OperationEnded) -> None:
    """Take how a send ended: the table of `core.operations` says what that makes of it."""
    work, seq = delivery.work, delivery.work.command.seq
    tracked = driver.operations.get(seq)
    if driver.armed.get(seq) is not work or tracked is None:
        if delivery.report is not None:
            delivery.report()
        return
    del driver.armed[seq]
    state = after(tracked.state, ENDINGS[delivery.ending], tracked.call.id)
    mark = OperationMark(seq, tracked.state, state, seen_applied=delivery.applied, awaited=state not in SETTLED)
    tracked.state = state
    if state in SETTLED:
        _settled(driver, draft, delivery, mark)
    elif state is S.QUEUED:
        draft.mark(mark)
        _again(driver, draft, delivery)
    else:
        mark.due, mark.error = driver.engine.store.estimated_now(), delivery.body
        draft.mark(mark)
        _forget_attempts(driver, draft, seq)


def _settled(driver: RunDriver, draft: Draft, delivery: OperationEnded, mark: OperationMark) -> None:
    """Record the outcome, and go on with it."""
    command = delivery.work.command
    tracked = driver.operations.pop(command.seq)
    draft.mark(mark)
    _forget_attempts(driver, draft, command.seq)
    info = json.dumps([tracked.call.id, mark.state, delivery.work.number, ""])
    failed = mark.state is not S.CONFIRMED
    entry = entry_of(driver, draft, command, delivery.body, failed=failed, attempt=delivery.work.number, info=info)
    driver.settled_at(entry.at)
    record(driver, draft, entry, None if failed else delivery.value)


def _again(driver: RunDriver, draft: Draft, delivery: OperationEnded) -> None:
    """Queue it for another send: after its back-off where it raised NotSent, at once where it was un-armed."""
    if delivery.row is None:
        driver.queued.append(delivery.work.command)
        return
    driver.rows[delivery.row.seq] = delivery.row
    draft.remember(delivery.row)
    driver.due_at(delivery.row.due, delivery.row.seq)


def _forget_attempts(driver: RunDriver, draft: Draft, seq: int) -> None:
    if driver.rows.pop(seq, None) is not None:
        draft.settle(seq)


def deliver(driver: RunDriver, draft: Draft, message: Message) -> None:
    """Take what the inbox says of an operation: its outcome, or that it waits for a person."""
    draft.take(message.key)
    tracked, command = driver.operations.get(message.seq), driver.instance.open.get(message.seq)
    if tracked is None or command is None:
        return
    if message.about == About.REVIEW:
        tracked.review = message.info
        return
    del driver.operations[message.seq]
    draft.forsaken.append(message.seq)
    attempt = int(json.loads(message.info)[2])
    entry = entry_of(driver, draft, command, message.body, failed=message.failed, attempt=attempt, info=message.info)
    driver.settled_at(entry.at)
    record(driver, draft, entry)


def in_review(driver: RunDriver, draft: Draft) -> Transition | None:
    """Return the hold of a run that has nothing left to do but to wait for people; None: something else may go on.

    Its own timeout is a cancellation: that ends the wait for an operation only where it was declared so.
    """
    reasons = [tracked.review for tracked in driver.operations.values()]
    if not reasons or not all(reasons) or driver.waits or driver.children or driver.pooled or driver.code_is_due():
        return None
    if driver.run.deadline is not None and not driver.cancel_delivered and any(_lets_go(each) for each in driver.operations.values()):
        return None
    more = f" ({len(reasons) - 1} more operations of this run wait for a person)" if len(reasons) > 1 else ""
    return holding.held(driver, draft, HoldKind.REVIEW, reasons[0] + more)


def awaits_settlement(driver: RunDriver) -> bool:
    """Return whether the code awaits an operation that may have been sent, and that no cancellation lets go of."""
    return any(each.state is not S.QUEUED and not _lets_go(each) for each in driver.operations.values())


def _lets_go(tracked: Tracked) -> bool:
    return tracked.call.spec.on_cancel == "abandon"


# ---- taking a run up --------------------------------------------------------------------------------


def take_up(driver: RunDriver, draft: Draft, record: Record) -> None:
    """Know again the operations that the record has, so that none is recorded twice; the code must still ask for them."""
    driver.operates = record.operates
    for row in record.operations:
        command = _expected(driver, row)
        if command is not None:
            _known(driver, command, row)
        elif row.state is S.QUEUED:
            draft.withdraw(row.seq)
        else:
            draft.abandoned.append(row.seq)
            draft.changed = True


def _known(driver: RunDriver, command: Command, row: OperationRow) -> None:
    """Take over what the record says; one that an earlier claim armed is for a settler to find out about."""
    queued, pooled = row.state is S.QUEUED, row.pool != DEFAULT_POOL
    driver.operations[row.seq] = Tracked(
        command, row.arguments, S.QUEUED if queued else S.UNKNOWN, recorded=True, review=row.hold_reason, pooled=pooled
    )  # fmt: skip
    if queued and not pooled:
        driver.queued.append(command)


def may_be_sent(driver: RunDriver, seq: int) -> bool:
    """Return whether *seq* is an operation that waits for its outcome, not for another send."""
    tracked = driver.operations.get(seq)
    return tracked is not None and tracked.state is not S.QUEUED


def _expected(driver: RunDriver, row: OperationRow) -> Command | None:
    """Return the open command of a recorded operation, None if the code has given it up.

    Raises:
        Mismatch: the code asked for something else there, or has not come so far and asks for nothing more.
    """
    command = driver.instance.open.get(row.seq)
    if command is None and row.seq <= driver.instance.seq:
        return None
    if command is None or command.name != row.name or command.digest.hex() != row.digest:
        asked = "nothing" if command is None else f"{command.kind} {command.name!r}"
        raise Mismatch(driver.instance.position, f"operation {row.name!r} (command {row.seq})", asked)
    return command


def id_in(entry: Entry) -> tuple[str, str]:
    """Return the operation ID and state that an OPERATION entry records."""
    operation_id, state, *_ = json.loads(entry.info)
    return operation_id, state
