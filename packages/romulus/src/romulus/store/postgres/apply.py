"""`Store.apply`: every transition whose guards hold in one commit, the others refused and kept as evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, LiteralString

import asyncpg

from romulus.core.errors import StoreError
from romulus.core.machine import ENDS_CLAIM, Change
from romulus.core.pools import DEFAULT_POOL
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected, RowsLocked

from .advance import statement
from .children import has_family, write_family
from .ending import ends
from .evidence import keep_refused
from .operating import for_review, mailed
from .pool import HASTE, Pool
from .pools import has_pools, leave_pools, write_pools
from .rows import generation_parts
from .session import OwnSession, Session
from .waking import wake_dealt

STATEMENT_ERRORS = (asyncpg.PostgresError, asyncpg.DataError, ValueError, TypeError, OverflowError)
APPLIED: Final[LiteralString] = (
    "SELECT x.id FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[]) x (id, run, generation, position) "
    "WHERE EXISTS (SELECT 1 FROM romulus.runs r WHERE r.key = x.run AND r.last_transition = x.id) OR EXISTS (SELECT 1 FROM "
    "romulus.journal j "
    "WHERE j.run = x.run AND j.generation = x.generation AND j.position = x.position AND j.transition = x.id)"
)


async def apply(pool: Pool, transitions: Sequence[Transition], forgot: Callable[[], None] | None = None) -> list[Verdict]:
    """Write *transitions*; see `Store.apply`. *forgot* is called when runs were parked and could not be looked at once more."""
    if not transitions:
        return []
    try:
        done, locked = await _written(pool, transitions)
    except STATEMENT_ERRORS as error:
        raise BatchRejected(str(error)) from error
    refused = [t for t in transitions if t.id not in done | locked]
    done |= await refuse(pool, refused)
    await _reread(pool, [t.run for t in transitions if t.change is Change.PARK and t.id in done], forgot)
    return [Verdict.LOCKED if t.id in locked else Verdict.APPLIED if t.id in done else Verdict.REFUSED for t in transitions]


def concerns_others(t: Transition) -> bool:
    """Return whether other processes may wait for what *t* does: a run to claim, or the end of one."""
    return t.change in ENDS_CLAIM or bool(t.children or t.pools) or any(i.pool != DEFAULT_POOL for i in t.intents)


def rounds(transitions: Sequence[Transition]) -> list[list[Transition]]:
    """Return *transitions* in groups that each hold a run once, in order: one statement sees a row as it was before it."""
    groups: list[list[Transition]] = []
    depth: dict[int, int] = {}
    for t in transitions:
        level = depth[t.run] = depth.get(t.run, -1) + 1
        if level == len(groups):
            groups.append([])
        groups[level].append(t)
    return groups


async def write_all(session: Session, transitions: Sequence[Transition]) -> set[int]:
    """Write transitions of different runs, plain ones with one statement, and return the IDs of those whose guards held."""
    if any(for_review(t) for t in transitions):
        bad = await mailed(session, transitions)
        transitions = [t for t in transitions if t.id not in bad]
    if not transitions:
        return set()
    sql, args = statement(transitions)
    row = await session.row("apply", sql, *args)
    assert row is not None
    done = set(row[1])
    await _write_beside(session, [t for t in transitions if t.id in done])
    return done


async def _write_beside(session: Session, transitions: Sequence[Transition]) -> None:
    """Write what needs statements of its own: whether a child's ID is free shows at its insertion."""
    family = [t for t in transitions if has_family(t)]
    if family:
        await write_family(session, family)
    pooling = [t for t in transitions if has_pools(t)]
    if pooling:
        await write_pools(session, [t for t in pooling if not ends(t)])
        await leave_pools(session, [t.generation for t in pooling if ends(t)])


def _in_pieces(t: Transition) -> bool:
    return has_family(t) or for_review(t) or has_pools(t)


async def refuse(pool: Pool, refused: Sequence[Transition]) -> set[int]:
    """Return the IDs of those that were applied before, under their own ID; keep the others as evidence."""
    if not refused:
        return set()
    known = await pool.rows(
        "apply.applied", APPLIED, [t.id for t in refused], [t.run for t in refused], [generation_parts(t.generation)[1] for t in refused],
        [t.entries[0].position if t.entries else -1 for t in refused],
    )  # fmt: skip
    applied = {found for (found,) in known}
    if applied:  # seen, after its commit had no answer
        await pool.flush()
    late = [(t.run, t.owner, t.fence, _detail(t)) for t in refused if t.id not in applied]
    if late:
        await pool.statement(lambda s: keep_refused(s, late))
    return applied


def _detail(t: Transition) -> str:
    return json.dumps({"transition": t.id, "change": t.change, "revision": t.revision, "position": t.position, "generation": t.generation})


async def _written(pool: Pool, transitions: Sequence[Transition]) -> tuple[set[int], set[int]]:
    """Write what can be written; return the IDs of those whose guards held, and of those for which rows are locked."""
    try:
        return await _write(pool, rounds(transitions)), set()
    except RowsLocked:
        return await _apart(pool, transitions)


async def _apart(pool: Pool, transitions: Sequence[Transition]) -> tuple[set[int], set[int]]:
    """Halve a batch that found rows locked until what needs them stands alone, all of one run together, so that the others are written."""
    runs = list(dict.fromkeys(t.run for t in transitions))
    if len(runs) == 1:
        return set(), {t.id for t in transitions}
    done, locked = set[int](), set[int]()
    for half in (set(runs[: len(runs) // 2]), set(runs[len(runs) // 2 :])):
        part = [t for t in transitions if t.run in half]
        try:
            written, left = await pool.write(lambda s, part=part: _in_turn(s, rounds(part)), HASTE), set[int]()  # type: ignore[misc]
        except RowsLocked:
            written, left = await _apart(pool, part)
        done |= written
        locked |= left
    return done, locked


async def _write(pool: Pool, groups: list[list[Transition]]) -> set[int]:
    if len(groups) == 1 and not any(_in_pieces(t) for t in groups[0]):
        return await pool.statement(lambda s: write_all(s, groups[0]))
    return await pool.write(lambda s: _in_turn(s, groups))


async def _in_turn(session: OwnSession, groups: list[list[Transition]]) -> set[int]:
    done: set[int] = set()
    for group in groups:
        done |= await write_all(session, group)
    return done


async def _reread(pool: Pool, parked: list[int], forgot: Callable[[], None] | None) -> None:
    """Look at parked runs once more, now that their parking is committed.

    A deposit is committed with a row in `wakes`, which whoever sees the run unowned turns into a due time. But the run's owner may
    have taken that row (`pulse`) while the parking was under way, in a statement whose snapshot was older than the deposit. So what
    was deposited before the commit is looked for after it; what is deposited later leaves its row for the claimers. If the process
    dies between the two, the sweep of any worker looks in the same way. The batch is committed: an error here is not its error.
    """
    if parked:
        try:
            await pool.statement(lambda s: wake_dealt(s, parked))
        except StoreError:
            if forgot is not None:
                forgot()
