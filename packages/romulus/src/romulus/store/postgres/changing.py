"""`Store.change`: a run row read under its lock, decided upon and written, in one transaction."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, LiteralString, TypeAlias

from romulus.core.machine import TERMINAL
from romulus.core.record import Entry, Generation, Run
from romulus.core.transition import Next
from romulus.store.contract import AskChild
from romulus.store.queue import place

from .children import Asked, asked, carried_out, leave_after_change, tell_ended
from .ending import begin_generation
from .floors import Lists
from .operating import LOCK_RUNS, leave_operations
from .operations import open_of
from .pools import leave_pools
from .reading import endings, run_and_generation
from .rows import of_name
from .session import Session

Decide: TypeAlias = Callable[[Run, Generation, int], Next | None]

LOCK: Final[LiteralString] = f"SELECT key FROM romulus.runs {of_name('$1', '$2')} FOR UPDATE"
# Children are locked in the order of their keys, as batches do; none of them is waited for.
FREE: Final[LiteralString] = f"{LOCK_RUNS} SKIP LOCKED"
WRITE: Final[LiteralString] = (
    "UPDATE romulus.runs SET status = $2, position = $3, revision = $4, owner = $5, fence = $6, cancel_seq = $7, cancel_reason = $8, "
    "last_transition = $9, armed = $10, losses = $11, wake_at = $12, lane = $13, queue_at = $14, priority = $15, digest = $16, "
    "queued_by = romulus.xid(), "
    "excluded = $17, hold_kind = $18, hold_reason = $19, deadline = $20, attributes = $21, started_at = $22, updated_at = $23, "
    "finished_at = $24 WHERE key = $1"
)
END: Final[LiteralString] = (
    "UPDATE romulus.generations SET started_at = coalesce(started_at, $3), ended_at = $4, failure = coalesce($5, failure) "
    "WHERE run = $1 AND number = $2 AND ended_at IS NULL"
)
FORGET: Final[LiteralString] = "DELETE FROM romulus.attempts WHERE run = $1 AND generation = $2"
WITHDRAW: Final[LiteralString] = (
    "WITH locked AS MATERIALIZED (SELECT seq FROM romulus.waits WHERE run = $1 ORDER BY seq FOR UPDATE), "
    "closed AS (DELETE FROM romulus.waits w USING locked l WHERE w.run = $1 AND w.seq = l.seq "
    "RETURNING w.namespace, w.name, w.correlation_id, w.event) "
    "INSERT INTO romulus.to_match (namespace, name, correlation_id, event) "
    "SELECT namespace, name, correlation_id, event FROM closed WHERE event IS NOT NULL"
)


async def change(session: Session, namespace: str, run_id: str, decide: Decide) -> tuple[Run, Run] | None:
    """Apply *decide* inside the open transaction; see `Store.change`."""
    if await session.row("change.lock", LOCK, namespace, run_id) is None:
        return None
    found = await run_and_generation(session, namespace, run_id)  # anew, now that it is locked
    assert found is not None
    run, generation = found
    before = replace(run)
    now: int = await session.value("change.clock", "SELECT romulus.clock()")
    decided = decide(run, generation, now)
    if decided is None:
        return before, before
    await _write(session, decided.run, now)
    await _follow(session, before, generation, decided, now)
    after = await run_and_generation(session, namespace, run_id)
    assert after is not None
    return before, after[0]


async def close_children(session: Session, limit: int, decide: AskChild, known: Lists) -> int:
    """Carry out requests at up to *limit* children, inside the open transaction; see `Store.close_children`.

    *known*: what a look has left.
    """
    requests, found = await asked(session, limit, known)
    locked = {key for (key,) in await session.rows("close.lock", FREE, [each.child for each in found])} if found else set[int]()
    for each in sorted(found, key=lambda each: each.child):
        if each.child not in locked:
            continue  # somebody else has it: its request stays
        entries, unsettled = await _before_retry(session, each) if each.how == "retry" else ((), False)
        await change(session, each.namespace, each.run_id, partial(_asked, decide, each, entries, unsettled))
        if each.how == "retry":
            await tell_ended(session, each.child)
    if requests:
        await carried_out(session, requests, found, limit, locked)
    return len(locked)


async def _before_retry(session: Session, child: Asked) -> tuple[Sequence[Entry], bool]:
    """Return what a retry of *child* looks at, under the run's lock: no other request begins a generation meanwhile."""
    await session.row("change.lock", LOCK, child.namespace, child.run_id)
    found = await run_and_generation(session, child.namespace, child.run_id)
    assert found is not None
    return await endings(session, child.child), bool(await open_of(session, found[1].key))


def _asked(
    decide: AskChild, asked: Asked, entries: Sequence[Entry], unsettled: bool, run: Run, generation: Generation, now: int
) -> Next | None:
    return decide(run, generation, asked.how, asked.reason, entries, unsettled, now)


async def _write(session: Session, run: Run, now: int) -> None:
    wake_at, lane, queue_at = (None, 0, None) if run.owner is not None else place(run.status, run.wake_at, run.priority, now)
    await session.rows(
        "change.run", WRITE,
        run.key, run.status.value, run.position, run.revision, run.owner, run.fence, run.cancel_seq, run.cancel_reason, run.last_transition,
        run.armed, run.losses, wake_at, lane, queue_at, run.priority, run.digest, run.excluded, run.hold_kind, run.hold_reason,
        run.deadline, run.attributes, run.started_at, now, run.finished_at,
    )  # fmt: skip


async def _follow(session: Session, before: Run, generation: Generation, decided: Next, now: int) -> None:
    run = decided.run
    if run.status in TERMINAL or decided.begins is not None:
        await session.rows("change.ended", END, run.key, generation.number, generation.started_at, now, decided.failure)
        await session.rows("change.attempts", FORGET, run.key, generation.number)
        await session.rows("change.waits", WITHDRAW, run.key)
        await leave_operations(session, generation.key)
        await leave_pools(session, [generation.key])
        await leave_after_change(session, run, generation.number, decided.failure, over=run.status in TERMINAL)
    if run.status in TERMINAL:
        sql: LiteralString = "UPDATE romulus.runs SET finished_at = coalesce(finished_at, $2) WHERE key = $1"
        await session.rows("change.finished", sql, run.key, now)
    if decided.begins is not None:
        await begin_generation(session, run.key, before.generation + 1, decided.begins)
    if run.owner is not None:
        await session.rows("change.wake", "INSERT INTO romulus.wakes (run) VALUES ($1)", run.key)
