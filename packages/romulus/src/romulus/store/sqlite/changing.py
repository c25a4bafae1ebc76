"""`Store.change`: a run row read, decided upon and written, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from romulus.core.machine import TERMINAL
from romulus.core.record import Generation, Record, Run
from romulus.core.transition import Next
from romulus.store.contract import AskChild
from romulus.store.queue import place

from .beside import forget_attempts
from .children import Asked, asked, carried_out, last_request, leave_children, tell_ended, tell_parents
from .generations import begin_generation
from .giveback import withdraw_all
from .operations import leave_operations, open_of
from .pools import leave_pools
from .reading import endings, record
from .session import Session

Decide: TypeAlias = Callable[[Run, Generation, int], Next | None]

WRITE: Final = (
    "UPDATE runs SET status = ?2, position = ?3, revision = ?4, owner = ?5, fence = ?6, cancel_seq = ?7, cancel_reason = ?8, "
    "last_transition = ?9, armed = ?10, losses = ?11, wake_at = ?12, lane = ?13, queue_at = ?14, priority = ?15, digest = ?16, "
    "excluded = ?17, hold_kind = ?18, hold_reason = ?19, deadline = ?20, attributes = ?21, started_at = ?22, updated_at = ?23, "
    "finished_at = ?24 WHERE key = ?1"
)
END: Final = (
    "UPDATE generations SET started_at = coalesce(started_at, ?2), ended_at = ?3, failure = coalesce(?4, failure) "
    "WHERE key = ?1 AND ended_at IS NULL"
)


def change(session: Session, namespace: str, run_id: str, decide: Decide, now: int) -> tuple[Run, Run] | None:
    """Apply *decide* inside the open transaction; see `Store.change`."""
    found = record(session, namespace, run_id)
    if found is None:
        return None
    before = replace(found.run)
    decided = decide(found.run, found.generation, now)
    if decided is None:
        return before, before
    _write(session, decided.run, now)
    _follow(session, found, decided, now)
    after = record(session, namespace, run_id)
    assert after is not None
    return before, after.run


def close_children(session: Session, limit: int, decide: AskChild) -> int:
    """Carry out requests at up to *limit* children; see `Store.close_children`. No lock is taken while there are none."""
    if not session.read(lambda s: s.run("to_close.look", "SELECT 1 FROM to_close LIMIT 1")):
        return 0
    return session.write(lambda s, now: _close_children(s, limit, decide, now))


def _close_children(session: Session, limit: int, decide: AskChild, now: int) -> int:
    last = last_request(session)
    found = asked(session, limit)
    for each in found:
        change(session, each.namespace, each.run_id, partial(_asked, session, decide, each), now)
        if each.how == "retry":
            tell_ended(session, each.child)
    if len(found) == limit:
        last = found[-1].request - found[-1].whole  # more of a whole generation's children may be left
    carried_out(session, found, last)
    return len(found)


def _asked(session: Session, decide: AskChild, asked: Asked, run: Run, generation: Generation, now: int) -> Next | None:
    again = asked.how == "retry"
    entries, unsettled = (endings(session, generation), bool(open_of(session, generation.key))) if again else ((), False)
    return decide(run, generation, asked.how, asked.reason, entries, unsettled, now)


def _write(session: Session, run: Run, now: int) -> None:
    wake_at, lane, queue_at = (None, 0, None) if run.owner is not None else place(run.status, run.wake_at, run.priority, now)
    session.run(
        "change.run",
        WRITE,
        (
            run.key, run.status, run.position, run.revision, run.owner, run.fence, run.cancel_seq, run.cancel_reason, run.last_transition,
            run.armed, run.losses, wake_at, lane, queue_at, run.priority, run.digest, run.excluded, run.hold_kind, run.hold_reason,
            run.deadline, run.attributes, run.started_at, now, run.finished_at,
        ),
    )  # fmt: skip


def _follow(session: Session, found: Record, decided: Next, now: int) -> None:
    run = decided.run
    if run.status in TERMINAL or decided.begins is not None:
        given = (found.generation.key, found.generation.started_at, now, decided.failure)
        session.run("change.ended", END, given)
        forget_attempts(session, [found.generation.key])
        withdraw_all(session, [run.key])
        leave_children(session, [found.generation.key], [run.key])
        leave_operations(session, [found.generation.key], now)
        leave_pools(session, [found.generation.key])
    if run.status in TERMINAL:
        session.run("change.finished", "UPDATE runs SET finished_at = coalesce(finished_at, ?) WHERE key = ?", (now, run.key))
        if run.depth:
            tell_parents(session, [(run.key, run.status, decided.failure)])
    if decided.begins is not None:
        begin_generation(session, run.key, decided.begins)
    if run.owner is not None:
        session.run("change.wake", "INSERT INTO wakes (run) VALUES (?)", (run.key,))
