"""Takes up a claimed run whose code has been replayed: lost attempts, open waits, back-offs, cancels, poison."""

from __future__ import annotations

import json
from heapq import heappush
from typing import TYPE_CHECKING

from romulus.core.attempts import LossHold, after_loss
from romulus.core.commands import Command, OperationCall, StepCall
from romulus.core.errors import Mismatch
from romulus.core.expecting import expected_wait, in_words
from romulus.core.record import Armed, AttemptRow, HoldKind, Record
from romulus.core.transition import CloseWait, Closing

from . import deliveries, family, holding
from .deliveries import DEADLINE
from .draft import Draft
from .engine import CancelIn, EventIn
from .operations import arming
from .pools import queueing

if TYPE_CHECKING:
    from .driver import RunDriver


def take_up(driver: RunDriver, record: Record) -> None:
    """Bring the driver in line with the record after its replay, then take the first turn of the claim."""
    draft = Draft(driver.engine.next_transition_id())
    try:
        family.take_up(driver, draft, record)
        arming.take_up(driver, draft, record)
        _pooled(driver, draft, record)
        _open_waits(driver, draft, record)
        _attempts(driver, draft, record)
        hold = _lost(driver, draft, record)
        deliveries.collect(driver, draft)
    except holding.HELD as error:
        refuse(driver, error)
        return
    if hold is None and record.run.losses >= driver.engine.settings.poison_after:
        hold = _poison(record)
    if hold is not None:
        driver.taken_up = True
        driver.submit(draft, holding.held(driver, draft, HoldKind.POISON, hold))
        return
    if record.run.deadline is not None:
        heappush(driver.dues, (record.run.deadline, DEADLINE))
    _arrivals(driver, record)
    driver.first_turn(draft)


def resume(driver: RunDriver, record: Record) -> None:
    """Go on with a parked run that stayed in memory: nothing but the claim has changed."""
    _arrivals(driver, record)
    driver.first_turn(Draft(driver.engine.next_transition_id()))


def refuse(driver: RunDriver, error: BaseException) -> None:
    """Give a run whose record the code here does not fit to a worker with other code, or hold it when there is none."""
    kind, reason = holding.why(driver, error)
    excluded = f"{driver.run.excluded} {driver.digest}".strip()
    if kind is HoldKind.CODE and driver.engine.owner.has_other_code(driver.run, excluded):
        driver.give_back(excluded)
    else:
        driver.hold(kind, reason)


def _pooled(driver: RunDriver, draft: Draft, record: Record) -> None:
    """Know again the attempts that the record has in pools, so that they are not queued twice; the code must still ask for them."""
    driver.pools = record.pooled
    for attempt in record.pool:
        if _asked(driver, attempt.seq, attempt.digest) is None:
            draft.recall(attempt.seq)
        else:
            driver.pooled[attempt.seq] = attempt.number


def _open_waits(driver: RunDriver, draft: Draft, record: Record) -> None:
    """Know again the waits that the record holds open, so that they are not opened twice; the code must still ask for them."""
    for wait in record.waits:
        command = expected_wait(driver.instance, wait)
        if command is None:
            draft.close(CloseWait(wait.seq, Closing.WITHDRAWN))
            continue
        driver.waits[wait.seq] = command
        if wait.deadline is not None:
            heappush(driver.dues, (wait.deadline, wait.seq))
    for command in driver.instance.take_issued():
        known = (driver.waits, driver.children, driver.operations, driver.pooled)
        if not any(command.seq in those for those in known):
            deliveries.issued(driver, draft, command)


def _attempts(driver: RunDriver, draft: Draft, record: Record) -> None:
    """Put commands with a back-off to their due times instead of the queue."""
    for row in record.attempts:
        if _asked(driver, row.seq, row.digest) is None or arming.may_be_sent(driver, row.seq):
            draft.settle(row.seq)
            continue
        driver.rows[row.seq] = row
        queueing.put_off(driver, row)
    if driver.rows:
        waiting = [command for command in driver.queued if command.seq not in driver.rows]
        driver.queued.clear()
        driver.queued.extend(waiting)


def _lost(driver: RunDriver, draft: Draft, record: Record) -> str | None:
    """Count the attempts that an earlier claim armed as lost; return why the run must be held, if it must."""
    hold = None
    for armed in parse_armed(record.run.armed):
        command = _asked(driver, armed.seq, armed.digest)
        if command is None or isinstance(command.detail, OperationCall):  # what became of an operation, its own record says
            draft.changed = True
            continue
        answer = _after_loss(driver, record, command, armed)
        row = answer.row if isinstance(answer, LossHold) else answer
        hold = hold or (answer.reason if isinstance(answer, LossHold) else None)
        driver.rows[row.seq] = row
        draft.remember(row)
        queueing.put_off(driver, row)
        if command in driver.queued:
            driver.queued.remove(command)
    return hold


def _after_loss(driver: RunDriver, record: Record, command: Command, armed: Armed) -> AttemptRow | LossHold:
    engine = driver.engine
    assert isinstance(command.detail, StepCall)
    return after_loss(
        command.detail.spec.retry, driver.rows.get(armed.seq), armed.seq, armed.digest, armed.number,
        record.run.losses > engine.settings.alone_after, engine.store.estimated_now(), engine.random01(), name=command.name,
    )  # fmt: skip


def parse_armed(text: str) -> list[Armed]:
    """Return the attempts that a run row lists."""
    return [Armed(*fields) for fields in json.loads(text)] if len(text) > len("[]") else []


def _asked(driver: RunDriver, seq: int, digest: str) -> Command | None:
    """Return the open command that a recorded attempt belongs to; the code must still ask for it.

    None: the code asked and gave it up in an advance whose outcomes alone were recorded.
    """
    command = driver.instance.open.get(seq)
    if command is None and seq <= driver.instance.seq:
        return None
    if command is None or not isinstance(command.detail, StepCall | OperationCall) or command.digest.hex() != digest:
        asked = "nothing" if command is None else in_words(command.kind, command.name, command.seq)
        recorded = f"an attempt at a step (command {seq}) that has another name or other arguments"
        raise Mismatch(driver.instance.position, recorded, asked)
    return command


def _poison(record: Record) -> str:
    run = record.run
    return (
        f"{run.losses} workers in a row lost this run without any progress, so it may be what stops them; "
        "look at the last step's memory and crashes, then `romulus runs release`"
    )


def _arrivals(driver: RunDriver, record: Record) -> None:
    """Queue what came while nobody had the run: cancel first, then events, then what is due."""
    run = record.run
    driver.cancel_seen = run.cancel_seq
    if run.cancel_seq and not driver.cancel_delivered:
        driver.queue.append(CancelIn(run.cancel_seq, "", run.cancel_reason))
    for wait in record.waits:
        if wait.deposit is not None:
            driver.queue.append(EventIn(wait.seq, wait.deposit))
    driver.read_inbox(record.inbox)
