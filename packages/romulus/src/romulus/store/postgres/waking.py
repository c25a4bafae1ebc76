"""Waking parked runs: `wakes` of unowned runs become due times, `wakes` of owned ones are their owner's to take."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from .floors import Lists, lowest
from .rows import MAIL
from .session import Session

AT_ONCE: Final[LiteralString] = (
    "wake_at = least(r.wake_at, c.now), lane = CASE r.priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = least(r.wake_at, c.now) - r.priority::bigint * 10000000, queued_by = romulus.xid()"
)
# Runs are reached by their wakes, and below what belongs to them by its key, whatever statistics say.
# Rows that somebody else has locked are left: their wakes stay, and whoever comes next sees what became of them.
SLEEPING: Final[LiteralString] = (
    "SELECT r.key FROM romulus.runs r WHERE r.owner IS NULL AND r.key = ANY(ARRAY(SELECT run FROM romulus.wakes WHERE key >= "
    f"{lowest('wakes', '$1', '$2', '$3')})) ORDER BY r.key "
    "FOR UPDATE OF r SKIP LOCKED"
)
# The rows are locked: every deposit whose wake is deleted here was committed before, and the run's next record shows it. Every run is
# written to, also one that does not wait: by that a claim in one statement knows that it has to look again (`taking`).
WAKE: Final[LiteralString] = (
    "WITH c AS MATERIALIZED (SELECT romulus.clock() AS now), "
    f"woken AS (UPDATE romulus.runs r SET {AT_ONCE} FROM c WHERE r.key = ANY($1::bigint[]) AND r.status = 'waiting'), "
    "others AS (UPDATE romulus.runs r SET queued_by = romulus.xid() WHERE r.key = ANY($1::bigint[]) AND r.status <> 'waiting') "
    f"DELETE FROM romulus.wakes w WHERE w.key >= {lowest('wakes', '$2', '$3', '$4')} AND w.run = ANY($1::bigint[])"
)
DEALT: Final[LiteralString] = (
    "(EXISTS (SELECT 1 FROM romulus.waits w WHERE w.run = r.key AND (w.event + 0) IS NOT NULL OFFSET 0) "
    f"OR EXISTS (SELECT 1 {MAIL} OFFSET 0)) "
    "AND r.owner IS NULL AND r.status = 'waiting' "
    "AND (r.wake_at IS NULL OR r.wake_at > (SELECT romulus.clock()))"
)
WAKE_DEALT: Final[LiteralString] = (
    "WITH c AS MATERIALIZED (SELECT romulus.clock() AS now) "
    f"UPDATE romulus.runs r SET {AT_ONCE} FROM c WHERE r.key = ANY(ARRAY(SELECT r.key FROM romulus.runs r WHERE r.key = "
    f"ANY($1::bigint[]) AND {DEALT} "
    "ORDER BY r.key FOR UPDATE SKIP LOCKED))"
)
# Only the index of waits that hold an event has these in order: without that, all open waits were read.
FORGOTTEN: Final[LiteralString] = (
    "SELECT r.key FROM ((SELECT run FROM romulus.waits WHERE event IS NOT NULL ORDER BY event) UNION SELECT run FROM romulus.inbox) d "
    f"CROSS JOIN LATERAL (SELECT * FROM romulus.runs WHERE key = d.run OFFSET 0) r WHERE {DEALT} LIMIT $1"
)
TAKE: Final[LiteralString] = (
    f"DELETE FROM romulus.wakes w WHERE w.key >= {lowest('wakes', '$2', '$3', '$4')} "
    "AND (SELECT r.owner FROM romulus.runs r WHERE r.key = w.run) = $1 RETURNING w.run"
)
OWNED: Final[LiteralString] = "SELECT key FROM romulus.runs WHERE owner = $1"


async def waken(session: Session, known: Lists) -> set[int]:
    """Turn the `wakes` of unowned runs into due times, inside the open transaction; return these runs. *known*: what a look has left."""
    keys = [key for (key,) in await session.rows("wakes.sleeping", SLEEPING, *known.wakes)]
    if keys:
        await session.rows("wakes.wake", WAKE, keys, *known.wakes)
    return set(keys)


async def wake_dealt(session: Session, keys: Sequence[int]) -> None:
    """Make those of the parked runs *keys* due whose waits hold an event already."""
    await session.rows("wakes.dealt", WAKE_DEALT, list(keys))


async def forgotten(session: Session, limit: int) -> list[int]:
    """Return parked runs whose waits hold an event and that nobody woke: a process died right after it had parked them."""
    return [key for (key,) in await session.rows("wakes.forgotten", FORGOTTEN, limit)]


async def take(session: Session, owner: str, known: Lists) -> list[int]:
    """Delete the `wakes` of runs that *owner* owns and return these runs. *known*: what a look has left."""
    return sorted({run for (run,) in await session.rows("wakes.take", TAKE, owner, *known.wakes)})


async def owned(session: Session, owner: str) -> list[int]:
    """Return every run that *owner* owns."""
    return sorted(key for (key,) in await session.rows("wakes.owned", OWNED, owner))
