"""Decides what transition a turn makes: advance, park, end, continue, give back, or nothing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from romulus.core.commands import Cancelled, Command, Continued, Failed, OperationCall, Outcome, Returned, StepCall
from romulus.core.digests import input_digest
from romulus.core.errors import RomulusError, ValueTooLarge
from romulus.core.failures import dump_failure
from romulus.core.machine import Change
from romulus.core.record import AttemptRow, HoldKind
from romulus.core.seeds import Seeds, derive
from romulus.core.transition import NewGeneration, Transition

from . import family, holding, undelivered
from .draft import Draft
from .engine import CancelIn, Work
from .operations import arming
from .pools import queueing

if TYPE_CHECKING:
    from .driver import RunDriver


class RunTimeout(RomulusError, TimeoutError):
    """The run went on past its own timeout."""


def conclude(driver: RunDriver, draft: Draft) -> Transition | None:
    """Return the transition of this turn, None if there is nothing to record."""
    if driver.instance.outcome is not None:
        return _end(driver, draft, driver.instance.outcome)
    if driver.run.position + len(draft.entries) >= driver.engine.settings.history_max:
        return holding.held(driver, draft, HoldKind.LIMIT, holding.history_limit(driver))
    if draft.poison:
        return holding.held(driver, draft, HoldKind.POISON, draft.poison)
    family.start(driver, draft)
    queueing.start(driver, draft)
    arm(driver, draft)
    unrecorded = arming.record_queued(driver, draft)
    if unrecorded or driver.armed or driver.queue or driver.queued or driver.unstarted or driver.unpooled or draft.answers:
        return _advance(driver, draft)
    return _park(driver, draft)


def arm(driver: RunDriver, draft: Draft) -> None:
    """Arm queued commands while there are slots; queue for a slot where there is none."""
    engine = driver.engine
    if not driver.queued or engine.owner.stopping or not engine.owner.may_arm():
        return
    while driver.queued:
        command = driver.queued[0]
        if command.seq not in driver.instance.open or command.seq in driver.armed:
            driver.queued.popleft()
        elif _take_slot(driver):
            driver.queued.popleft()
            _arm_one(driver, draft, command)
        else:
            break
    driver.give_slots()


def _take_slot(driver: RunDriver) -> bool:
    if driver.reserved:
        driver.reserved -= 1
        return True
    if driver.engine.slots.take():
        return True
    if not driver.waiting_slot:
        driver.waiting_slot = True
        driver.engine.slots.wait(driver)
    return False


def _arm_one(driver: RunDriver, draft: Draft, command: Command) -> None:
    row = driver.rows.get(command.seq)
    number = row.number + 1 if row is not None else 1
    fragment = f'[{command.seq},{number},"{command.digest.hex()}",{_quoted(command.name)}]'
    work = Work(driver, command, number, row, fragment)
    driver.armed[command.seq] = work
    if isinstance(command.detail, OperationCall):
        arming.armed(driver, draft, work)
    draft.arms.append(work)
    draft.changed = True


@lru_cache(maxsize=1_000)
def _quoted(name: str) -> str:
    return json.dumps(name)


def armed_text(driver: RunDriver) -> str:
    """Return the run row's list of attempts that may have begun: an earlier claim's until they are counted as lost."""
    return _listed(driver.armed.values()) if driver.taken_up else driver.run.armed


def begun_text(driver: RunDriver, known: Collection[int]) -> str:
    """Return that list of a run that goes no further: what has not begun never will, and of *known* seqs it is recorded how they ended."""
    if not driver.taken_up:
        return driver.run.armed
    return _listed(work for seq, work in driver.armed.items() if work.begun and seq not in known)


def _listed(works: Iterable[Work]) -> str:
    fragments = ",".join(work.fragment for work in works)
    return f"[{fragments}]" if fragments else ""


def _advance(driver: RunDriver, draft: Draft) -> Transition | None:
    if not draft.changed:
        return None
    return _seal(driver, draft, Change.ADVANCE)


def _park(driver: RunDriver, draft: Draft) -> Transition:
    """Leave the run to its timers, waits and back-offs; a run with none of them is deadlocked."""
    due = driver.next_due()
    held = arming.in_review(driver, draft)
    if held is not None:
        return held
    if due is None and not (driver.waits or driver.children or driver.operations or driver.pooled):
        return holding.held(driver, draft, HoldKind.DEADLOCK, holding.deadlock(driver))
    return _seal(driver, draft, Change.PARK, wake_at=due)


def freed(driver: RunDriver, draft: Draft, excluded: str | None) -> Transition:
    """Return the transition that gives the run back: attempts whose body never began are un-armed.

    An attempt that is cut off because this worker stops is not the run's fault: it keeps its number and counts against no limit,
    unless the step allows one attempt only, which the next claim holds.
    """
    for seq in undelivered.keep(driver, draft):
        del driver.armed[seq]
    for work in [work for work in driver.armed.values() if work.begun]:
        _cut_off(driver, draft, work)
    for seq in [seq for seq, work in driver.armed.items() if not work.begun]:
        work = driver.armed.pop(seq)
        if isinstance(work.command.detail, OperationCall):
            arming.unarm(driver, draft, work)
        driver.engine.executor.withdraw(work)
    return _seal(driver, draft, Change.FREE, wake_at=0, excluded=excluded)


def _cut_off(driver: RunDriver, draft: Draft, work: Work) -> None:
    detail, seq, row = work.command.detail, work.command.seq, work.row
    if not isinstance(detail, StepCall) or detail.spec.retry.max_attempts == 1:
        return
    failures, losses, beat = (row.failures, row.losses, row.heartbeat) if row is not None else (0, 0, b"")
    now = driver.engine.store.estimated_now()
    digest, name = work.command.digest.hex(), work.command.name
    draft.remember(AttemptRow(seq, digest, work.number, failures, losses, now, b"", work.heartbeat or beat, name))
    driver.engine.executor.withdraw(driver.armed.pop(seq))


def _end(driver: RunDriver, draft: Draft, outcome: Outcome) -> Transition:
    """Return the transition that ends the generation with what its code came to, or holds what ended for what it was refused."""
    if driver.instance.broken:
        return holding.held(driver, draft, HoldKind.REFUSED, f"{driver.instance.refusal}; deploy the mended code, then release it")
    vault = driver.engine.registry.vault
    goes_on = not (driver.cancel_delivered or _cancel_waits(driver))  # else neither a result nor another pass: it was accepted
    try:
        match outcome:
            case Returned(body) if goes_on:
                result = vault.seal(body, f"the result of workflow {driver.run.workflow!r}")
                return _seal(driver, draft, Change.SUCCEED, result=result)
            case Continued() if goes_on:
                return _seal(driver, draft, Change.CONTINUE, wake_at=0, begins=_next_generation(driver, outcome))
            case Failed(body, ended_by):
                return _fail(driver, draft, body, ended_by)
            case _:
                return _cancelled(driver, draft, outcome)
    except ValueTooLarge as error:  # a codec that fails may work again: that holds the run
        return _fail(driver, draft, dump_failure(error), None)


def _cancel_waits(driver: RunDriver) -> bool:
    """Return whether a cancel was accepted that the code ended too early to be told of: what was recorded alone had ended it."""
    return any(isinstance(delivery, CancelIn) for delivery in driver.queue)


def _fail(driver: RunDriver, draft: Draft, body: bytes, ended_by: int | None) -> Transition:
    failure = driver.engine.registry.vault.seal_failure(body, f"the failure of run {driver.run.id!r}")
    return _seal(driver, draft, Change.FAIL, failure=failure, ended_by=ended_by)


def _cancelled(driver: RunDriver, draft: Draft, outcome: Outcome) -> Transition:
    """End after a delivered cancel: cancelled, or failed where it was the run's own timeout and nobody has asked for a cancel since."""
    if driver.cancel_name == "timeout" and not driver.cancel_seen:
        error = RunTimeout(f"run {driver.run.id!r} went on past its timeout")
        return _fail(driver, draft, dump_failure(error), None)
    body = outcome.body if isinstance(outcome, Cancelled) else b""
    failure = driver.engine.registry.vault.seal_failure(body, "the cancellation") if body else None
    return _seal(driver, draft, Change.END_CANCELLED, failure=failure)


def _next_generation(driver: RunDriver, outcome: Continued) -> NewGeneration:
    """Return the generation that follows: new arguments under a new seed, the same whenever this one is followed.

    The run's deadline goes on, and its timeout is kept for a retry; what the next workflow declares holds where the run has none.
    """
    registry = driver.engine.registry
    spec = registry.workflow(outcome.workflow, outcome.version)
    seeds = Seeds.first(derive(driver.instance.seeds.newest, "continue as new").hex())
    return NewGeneration(
        spec.name,
        spec.version,
        registry.vault.seal(outcome.arguments, f"arguments of workflow {spec.name!r}"),
        input_digest(seeds.newest, outcome.arguments),
        seeds.dump(),
        spec.timeout if driver.timeout is None else driver.timeout,
    )


def _seal(
    driver: RunDriver,
    draft: Draft,
    change: Change,
    *,
    wake_at: int | None = None,
    excluded: str | None = None,
    result: bytes | None = None,
    failure: bytes | None = None,
    ended_by: int | None = None,
    begins: NewGeneration | None = None,
) -> Transition:
    return draft.seal(
        driver.run, driver.engine.owner.id, change, armed_text(driver), cancel_seq=driver.cancel_seen, digest=driver.digest,
        wake_at=wake_at, excluded=excluded, result=result, failure=failure, ended_by=ended_by, begins=begins,
        parent=driver.parent, operates=driver.operates, pooled=driver.pools,
    )  # fmt: skip
