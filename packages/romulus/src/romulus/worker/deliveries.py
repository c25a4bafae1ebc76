"""Delivers arrivals to a run's instance, one at a time, and collects in the draft what each one records."""

from __future__ import annotations

import json
from heapq import heappush
from typing import TYPE_CHECKING

from romulus.core.commands import CancelChild, ChildCall, Command, OperationCall, StepCall, TimerCall, WaitCall
from romulus.core.duration import to_datetime
from romulus.core.errors import CleanUpTimeout, SerializationError, Undecodable
from romulus.core.failures import dump_failure
from romulus.core.instance import RunInfo
from romulus.core.record import About, Entry, Kind, Record
from romulus.core.transition import CloseWait, Closing, NewWait

from . import family
from .draft import Draft
from .engine import CancelIn, DueNow, EventIn, MessageIn, OperationEnded, Outcome, TryAgain
from .entries import entry_of, patches, record
from .operations import arming
from .pools import queueing

if TYPE_CHECKING:
    from .driver import RunDriver

DEADLINE = -1  # the "seq" of the run's own deadline among the due times
GRACE = -2  # that of the end of its clean-up


def run_info(record: Record) -> RunInfo:
    """Return what workflow code may know of its run."""
    run, generation = record.run, record.generation
    started = generation.started_at or run.started_at or run.created_at
    return RunInfo(run.id, run.workflow, run.version, to_datetime(started), run.namespace, run.generation, run.depth)


def deliver_all(driver: RunDriver, draft: Draft) -> None:
    """Deliver what has queued, within the bounds of one transition, then collect what the code asks for."""
    settings = driver.engine.settings
    collect(driver, draft)
    driver.take_dues()
    while driver.queue and driver.instance.outcome is None:
        if len(draft.entries) >= settings.turn_entries_max or draft.bytes >= settings.turn_bytes_max:
            break
        _deliver(driver, draft)
        collect(driver, draft)


def _deliver(driver: RunDriver, draft: Draft) -> None:
    delivery = driver.queue.popleft()
    match delivery:
        case Outcome():
            _outcome(driver, draft, delivery)
        case OperationEnded():
            arming.ended(driver, draft, delivery)
        case TryAgain():
            _try_again(driver, draft, delivery)
        case DueNow():
            _due(driver, draft, delivery)
        case EventIn():
            _event(driver, draft, delivery)
        case MessageIn() if delivery.message.about in (About.OPERATION, About.REVIEW):
            arming.deliver(driver, draft, delivery.message)
        case MessageIn() if delivery.message.about == About.POOL:
            queueing.deliver(driver, draft, delivery.message)
        case MessageIn():
            family.deliver(driver, draft, delivery.message)
        case CancelIn():
            _cancel(driver, draft, delivery)


def _outcome(driver: RunDriver, draft: Draft, outcome: Outcome) -> None:
    """Record an attempt's outcome and go on with it, unless the code gave the step up meanwhile."""
    work = outcome.work
    command = work.command
    if driver.armed.get(command.seq) is not work:
        return
    del driver.armed[command.seq]
    if driver.rows.pop(command.seq, None) is not None:
        draft.settle(command.seq)
    draft.changed = True
    entry = entry_of(driver, draft, command, outcome.body, failed=outcome.failed, attempt=work.number)
    record(driver, draft, entry, outcome.value)


def _try_again(driver: RunDriver, draft: Draft, again: TryAgain) -> None:
    """Remember a failed attempt; its command is armed again when the back-off is over."""
    row, command = again.row, again.work.command
    if driver.armed.get(row.seq) is not again.work:
        return
    del driver.armed[row.seq]
    driver.rows[row.seq] = row
    draft.remember(row)
    heappush(driver.dues, (row.due, command.seq))


def _due(driver: RunDriver, draft: Draft, due: DueNow) -> None:
    """Fire a timer, pass a wait's deadline, or queue a command whose back-off is over."""
    if due.seq == DEADLINE:
        _cancel(driver, draft, CancelIn(driver.cancel_seen, "timeout", "the run's own timeout has passed"))
        return
    if due.seq == GRACE and arming.awaits_settlement(driver):
        driver.cancelled_at(driver.engine.store.estimated_now())
        return
    if due.seq == GRACE:
        if due.due != driver.grace_due:
            return
        draft.due(due.due)
        driver.instance.give_up(dump_failure(CleanUpTimeout(driver.run.id, driver.engine.settings.cancel_grace)))
        return
    command = driver.instance.open.get(due.seq)
    match command.detail if command is not None else None:
        case StepCall() | OperationCall() if command is not None and due.seq in driver.rows:
            driver.queued.append(command)
        case TimerCall() if command is not None:
            draft.due(due.due)
            record(driver, draft, entry_of(driver, draft, command, b"", at=due.due))
        case WaitCall() if command is not None:
            draft.due(due.due)
            driver.waits.pop(due.seq, None)
            draft.close(CloseWait(due.seq, Closing.TIMED_OUT))
            record(driver, draft, entry_of(driver, draft, command, b"", failed=True, at=due.due))
        case _:
            pass


def _event(driver: RunDriver, draft: Draft, arrived: EventIn) -> None:
    """Consume a matched event, or take it as bad where it does not fit the declared type.

    Raises:
        Undecodable: the App's codec fails at present; the event stays with its wait.
    """
    command, deposit = driver.instance.open.get(arrived.seq), arrived.deposit
    if command is None or not isinstance(command.detail, WaitCall) or arrived.seq not in driver.waits:
        return
    vault = driver.engine.registry.vault
    try:
        value = command.detail.value.load(vault.open(deposit.payload, f"event {deposit.event_id!r}"))
    except (Undecodable, SerializationError) as error:
        if not vault.works():
            raise Undecodable(str(error)) from error
        draft.close(CloseWait(arrived.seq, Closing.BAD, deposit.event))
        return
    del driver.waits[arrived.seq]
    draft.close(CloseWait(arrived.seq, Closing.CONSUMED, deposit.event))
    info = json.dumps([deposit.event_id, deposit.received_at, deposit.correlation_id, deposit.name], ensure_ascii=False)
    record(driver, draft, entry_of(driver, draft, command, deposit.payload, info=info), value)


def _cancel(driver: RunDriver, draft: Draft, cancel: CancelIn) -> None:
    """Deliver the first cancel of a generation; a second one does not interrupt clean-up."""
    if driver.cancel_delivered:
        return
    driver.cancel_delivered, driver.cancel_name = True, cancel.name
    instance = driver.instance
    at = max(instance.now, driver.engine.store.estimated_now())
    body = driver.engine.registry.vault.seal(json.dumps(cancel.reason).encode(), "cancel reason")
    entry = Entry(
        instance.position, Kind.CANCEL, cancel.seq, cancel.name, 0, at, False, body, b"", "", driver.run.fence, draft.id
    )  # fmt: skip
    draft.record(entry)
    driver.cancelled_at(at)
    instance.deliver(entry, replaying=False)
    patches(driver, draft)


def collect(driver: RunDriver, draft: Draft) -> None:
    """Take up what the code asked for and what it gave up."""
    patches(driver, draft)
    if driver.instance.broken:
        return  # the mended code may still ask for what this code gave up
    for command in driver.instance.take_issued():
        issued(driver, draft, command)
    for command in driver.instance.take_withdrawn():
        _withdrawn(driver, draft, command)
    if driver.instance.attributes_changed:
        _attributes(driver, draft)


def _attributes(driver: RunDriver, draft: Draft) -> None:
    """Note what the code has set, all of it since the generation began: a replay comes to the same."""
    driver.instance.attributes_changed = False
    stored = json.loads(driver.run.attributes or "{}")
    merged = {**stored, **driver.instance.attributes}
    if merged != stored or [type(value) for value in merged.values()] != [type(value) for value in stored.values()]:
        draft.attributes = json.dumps(merged, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        draft.changed = True


def issued(driver: RunDriver, draft: Draft, command: Command) -> None:
    """Queue a step, watch a timer, open a wait, make a child."""
    detail = command.detail
    match detail:
        case StepCall() if queueing.is_pooled(command):
            queueing.issued(driver, command)
        case StepCall():
            driver.queued.append(command)
        case OperationCall():
            arming.issued(driver, command)
        case TimerCall():
            heappush(driver.dues, (detail.due, command.seq))
        case WaitCall():
            driver.waits[command.seq] = command
            draft.open(NewWait(command.seq, detail.name, detail.correlation_id, detail.deadline, detail.shared, detail.include_late))
            if detail.deadline is not None:
                heappush(driver.dues, (detail.deadline, command.seq))
        case ChildCall():
            family.issued(driver, command)
        case CancelChild():
            family.cancel(draft, command)


def _withdrawn(driver: RunDriver, draft: Draft, command: Command) -> None:
    seq = command.seq
    if (work := driver.armed.pop(seq, None)) is not None:
        driver.engine.executor.withdraw(work)
        draft.changed = True
    if driver.rows.pop(seq, None) is not None:
        draft.forget(seq)
    queueing.withdrawn(driver, draft, seq)
    if driver.waits.pop(seq, None) is not None:
        draft.close(CloseWait(seq, Closing.WITHDRAWN))
    if isinstance(command.detail, ChildCall):
        family.withdrawn(driver, draft, command)
    elif isinstance(command.detail, OperationCall):
        arming.withdrawn(driver, draft, command)


def still_due(driver: RunDriver, due: int, seq: int) -> bool:
    """Return whether a due time is still awaited."""
    if seq == DEADLINE:
        return not driver.cancel_delivered
    if seq == GRACE:
        return driver.instance.outcome is None and due == driver.grace_due
    command = driver.instance.open.get(seq)
    if command is None:
        return False
    if isinstance(command.detail, StepCall | OperationCall):
        row = driver.rows.get(seq)
        return row is not None and row.due == due and seq not in driver.armed and seq not in driver.pooled
    return True
