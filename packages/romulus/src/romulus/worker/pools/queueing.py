"""A run's commands at steps of pools: queued with its transitions; what its inbox tells of them is decided upon here, as of any attempt."""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING, cast

from romulus.core.attempts import LossHold, after_cut, after_failure, after_loss
from romulus.core.commands import Command, StepCall
from romulus.core.errors import ValueTooLarge
from romulus.core.failures import dump_failure, load_failure
from romulus.core.pools import NewPoolAttempt, PoolEnd, PoolTold
from romulus.core.record import AttemptRow, Message
from romulus.core.retry import Retry
from romulus.worker import family
from romulus.worker.draft import Draft
from romulus.worker.engine import MessageIn
from romulus.worker.entries import entry_of, record

if TYPE_CHECKING:
    from romulus.worker.driver import RunDriver


def is_pooled(command: Command) -> bool:
    """Return whether workers of a pool work the command."""
    return isinstance(command.detail, StepCall) and command.detail.spec.pool is not None


def issued(driver: RunDriver, command: Command) -> None:
    """Have the command queued with the next transition; arguments that cannot be stored are its outcome."""
    call, seq = cast("StepCall", command.detail), command.seq
    try:
        driver.sealed[seq] = driver.engine.registry.vault.seal(call.arguments, f"arguments of step {command.name!r}")
    except ValueTooLarge as error:
        driver.queue.append(MessageIn(Message(0, family.REFUSED, seq, True, dump_failure(error), "")))
    else:
        driver.unpooled[seq] = command


def start(driver: RunDriver, draft: Draft) -> None:
    """Put attempts that wait to be queued into the draft, as many as one transition may have."""
    for seq in list(driver.unpooled)[: driver.engine.settings.turn_pool_max]:
        attempt = _attempt(driver, driver.unpooled.pop(seq))
        draft.queue_in_pool(attempt)
        driver.pooled[seq] = attempt.number
        driver.pools = True


def withdrawn(driver: RunDriver, draft: Draft, seq: int) -> None:
    """Delete the attempt of a command that the code no longer awaits; its holder learns it at its next heartbeat."""
    driver.unpooled.pop(seq, None)
    driver.sealed.pop(seq, None)
    if driver.pooled.pop(seq, None) is not None:
        draft.recall(seq)


def deliver(driver: RunDriver, draft: Draft, message: Message) -> None:
    """Take what is told of an attempt: its outcome is recorded, or another one is queued, or a person is needed."""
    told, seq = PoolTold.of(message.info), message.seq
    wanted = told.generation == driver.run.generation_key and driver.pooled.get(seq) == told.number
    follows = _follows(driver, driver.instance.open[seq], message, told) if wanted else None  # may raise: nothing is taken then
    if message.key:
        draft.take(message.key)
    if not wanted:
        return
    del driver.pooled[seq]
    draft.end_in_pool(seq)
    if follows is None:
        _outcome(driver, draft, driver.instance.open[seq], message, told.number)
    else:
        driver.pool_fences[seq] = told.fence
        _next(driver, draft, driver.instance.open[seq], follows)


def put_off(driver: RunDriver, row: AttemptRow) -> None:
    """Have a command tried again when its back-off is over: its pool sees to that, or else the run itself."""
    if row.seq not in driver.unpooled and row.seq not in driver.pooled:
        heappush(driver.dues, (row.due, row.seq))


def _attempt(driver: RunDriver, command: Command) -> NewPoolAttempt:
    spec, seq = cast("StepCall", command.detail).spec, command.seq
    row = driver.rows.get(seq)
    fence = max(driver.run.fence, driver.pool_fences.pop(seq, 0))
    return NewPoolAttempt(
        seq, spec.pool or "", spec.name, command.digest.hex(), driver.sealed.pop(seq), row.number + 1 if row else 1, row.due if row else 0,
        spec.timeout, spec.heartbeat_timeout, row.heartbeat if row else b"", fence,
    )  # fmt: skip


def _follows(driver: RunDriver, command: Command, message: Message, told: PoolTold) -> AttemptRow | LossHold | None:
    """Return what follows an attempt's end; None: it is the outcome."""
    spec, row = cast("StepCall", command.detail).spec, driver.rows.get(message.seq)
    given = (message.seq, command.digest.hex(), told.number)
    now, random01 = driver.engine.store.estimated_now(), driver.engine.random01()
    follows: AttemptRow | LossHold | None = None
    if told.end == PoolEnd.UNBEGUN:
        follows = after_cut(Retry(), row, *given[:2], told.number - 1, now, name=command.name)
    elif told.end == PoolEnd.CUT:
        follows = after_cut(spec.retry, row, *given, now, name=command.name)
    if told.end == PoolEnd.LOST or (told.end == PoolEnd.CUT and follows is None):
        follows = after_loss(spec.retry, row, *given, False, now, random01, name=command.name)
    elif told.end == PoolEnd.RAISED:
        error = load_failure(driver.engine.registry.vault.open(message.body, f"the failure of step {command.name!r}"))
        follows = after_failure(spec.retry, row, *given, message.body, error, now, random01, name=command.name)
    if told.heartbeat and follows is not None:
        (follows.row if isinstance(follows, LossHold) else follows).heartbeat = bytes.fromhex(told.heartbeat)
    return follows


def _outcome(driver: RunDriver, draft: Draft, command: Command, message: Message, number: int) -> None:
    if driver.rows.pop(command.seq, None) is not None:
        draft.settle(command.seq)
    record(driver, draft, entry_of(driver, draft, command, message.body, failed=message.failed, attempt=number))


def _next(driver: RunDriver, draft: Draft, command: Command, follows: AttemptRow | LossHold) -> None:
    """Remember the attempt; queue the next one, or have the run held."""
    row = follows.row if isinstance(follows, LossHold) else follows
    driver.rows[row.seq] = row
    draft.remember(row)
    if isinstance(follows, LossHold):
        draft.poison = follows.reason
    elif is_pooled(command):
        issued(driver, command)
    else:
        put_off(driver, row)  # the code that is here now has the step without its pool
