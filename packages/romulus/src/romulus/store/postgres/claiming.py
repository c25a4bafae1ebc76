"""Claims: due runs taken under a new fence, oldest first and fairly between workflows.

A look without locks says how many runs of each queue are due, and so how many to take of each; these are then locked by plain
top-level selects with SKIP LOCKED, queue by queue, so that workers that look at once take different runs and lock no more than they take.
Where all of one queue, or all that was woken, can be taken, one statement does it (`taking`).
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple

from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest, Claims, Owned

from .looking import ALONE, READY, Look, Queue, conditions, look
from .matching import Matched, match
from .matching import Queue as Blocked
from .pool import Pool
from .rows import RECORD, record_of
from .session import Session
from .taking import DUE, ONE, claimed, live, take_queue, take_woken
from .waking import waken

RISE_MAX: Final = 1000  # prioritised runs that rise to their rank in one claim


class Claimed(NamedTuple):
    """A claim, whether it has left something that it has matched, or seen to be due or woken, and the queues that it found blocked."""

    claims: Claims
    left: bool
    blocked: Sequence[Blocked] = ()


LOCK: Final[LiteralString] = f"SELECT r.key {DUE}"
LOCK_ALONE: Final[LiteralString] = (
    f"SELECT r.key FROM romulus.runs r, {ONE} WHERE {ALONE} AND $10::integer = 0 AND r.queue_at >= $11 AND {READY} AND r.owner IS NULL "
    "ORDER BY r.queue_at, r.key LIMIT $5 FOR UPDATE OF r SKIP LOCKED"
)
RISING: Final[LiteralString] = (
    "SELECT key FROM romulus.runs WHERE (namespace || '') = $1 AND workflow = $2 AND version = $3 AND lane = 2 AND queue_at <= $4 "
    "AND queue_at IS NOT NULL AND queue_at >= $6 ORDER BY queue_at LIMIT $5 FOR UPDATE SKIP LOCKED"
)
RISE: Final[LiteralString] = (
    "UPDATE romulus.runs SET lane = 1, queue_at = queue_at - priority::bigint * 10000000, queued_by = romulus.xid() "
    "WHERE key = ANY($1::bigint[])"
)
TAKE: Final[LiteralString] = (
    f"UPDATE romulus.runs r SET {claimed('$1', '$2', '$3')} "
    "FROM romulus.generations g WHERE r.key = ANY($4::bigint[]) AND g.run = r.key AND g.number = r.generation AND "
    f"(r.owner IS NULL OR r.owner = $1) AND {live('$1')} RETURNING {RECORD}"
)
RECLAIM: Final[LiteralString] = (
    "WITH c AS MATERIALIZED (SELECT romulus.clock() AS now) UPDATE romulus.runs r SET fence = greatest(r.fence + 1, "
    "c.now), updated_at = c.now "
    "FROM c, romulus.generations g WHERE r.key = $1 AND r.owner = $2 AND r.fence = $3 AND g.run = r.key AND g.number = r.generation "
    f"RETURNING {RECORD}"
)
DOUBTFUL: Final[LiteralString] = "SELECT key FROM romulus.runs WHERE owner = $1 AND updated_at = ANY($2::bigint[]) ORDER BY key FOR UPDATE"


async def claim_at_once(pool: Pool, request: ClaimRequest, to: RunStatus, seen: Look, times: list[int]) -> Claimed | None:
    """Claim all that *seen* says is due with one statement, its own commit; None: nothing was claimed, `claim` does it.

    What it leaves is for `claim`, which makes due what is woken and may not be taken here.

    *times*: as of `claim`.
    """
    due = sum(map(len, seen.ready.values()))
    if seen.queued or not _all_can_be_taken(request, seen, due) or len(seen.ready) > (0 if seen.asleep else 1):
        return None
    times.append(seen.now)
    if seen.asleep:
        records, more = await pool.statement(lambda s: take_woken(s, request, to, seen, request.limit))
    else:
        ((queue, _),) = seen.ready.items()
        records = await pool.statement(lambda s: take_queue(s, request, to, seen, queue, due))
        more = len(records) < due
    return Claimed(claims(records, seen, seen.now if more else seen.later), more) if records else None


async def claim(session: Session, request: ClaimRequest, to: RunStatus, seen: Look, doubtful: Sequence[int], times: list[int]) -> Claimed:
    """Match and claim what *seen* says is there, inside the open transaction, which has the locks of the queues to be matched.

    *doubtful*: times of claims whose commit had no answer; *times* gets this one's, should its own have none.
    """
    matched, blocked = await match(session, seen.queued, request.match_max) if seen.queued else Matched(set(), [])
    full, ready = len(seen.queued) == request.match_max, sum(map(len, seen.ready.values()))
    taken: Sequence[Record] = ()
    more = seen.asleep
    if matched and _all_can_be_taken(request, seen, ready + len(matched)):
        times.append(seen.now)
        taken, more = await take_woken(session, request, to, seen, request.limit - ready)
    woken = {record.run.key for record in taken}
    if more or seen.rising or not matched <= woken:
        woken |= await waken(session, seen.lists)
        for n in seen.rising:
            await _rise(session, request, n, seen)
        seen = await look(session, request, 0, seen.queues, seen.lists)
    if not seen.live:
        return Claimed(Claims(taken, None), bool(matched), blocked)  # marked dead meanwhile: its claims would be void at once
    times.append(seen.now)
    room = request.limit - len(taken)
    keys = await _lost(session, request, doubtful)
    keys += await _pick(session, request, turns(seen.ready, room - len(keys)), seen)
    left = sum(map(len, seen.ready.values())) > room
    records = [*await _take(session, request, to, seen.now, keys), *taken]
    # A run may have been in the middle of parking: it is looked at once more, after this commit.
    found = claims(records, seen, seen.now if left else seen.later, unmatched=bool(full or matched - woken))
    return Claimed(found, full or not matched <= {record.run.key for record in records}, blocked)


def claims(records: Sequence[Record], seen: Look, due: int | None, *, unmatched: bool = False) -> Claims:
    """Return what was claimed, with what else was seen."""
    return Claims(records, due, unmatched=unmatched, wakes=seen.wakes, closing=seen.closing, alone=seen.alone)


async def reclaim(session: Session, run: int, owner: str, fence: int) -> Record | None:
    """Take a new fence on a run that *owner* still owns under *fence*; see `Store.reclaim`."""
    row = await session.row("reclaim", RECLAIM, run, owner, fence)
    return None if row is None else record_of(row)


async def owned(session: Session, owner: str) -> list[Owned]:
    """Return every run that *owner* owns; see `Store.owned`."""
    rows = await session.rows("owned", "SELECT key, fence, namespace, id FROM romulus.runs WHERE owner = $1", owner)
    return [Owned(*row) for row in rows]


def turns(ready: dict[Queue, list[int]], limit: int) -> list[Queue]:
    """Return from which queue to take one after another, at most *limit*: each workflow in turn, the one with the oldest head first."""
    workflows: dict[int, list[tuple[int, Queue]]] = {}
    for queue, due in ready.items():
        workflows.setdefault(queue[0], []).extend((at, queue) for at in due)
    lines = sorted(sorted(line) for line in workflows.values())
    picked: list[Queue] = []
    for turn in range(max(map(len, lines), default=0)):
        if len(picked) >= limit:
            break
        picked += [line[turn][1] for line in lines if turn < len(line)]
    return picked[: max(limit, 0)]


def _all_can_be_taken(request: ClaimRequest, seen: Look, due: int) -> bool:
    """Return whether there is room for all *due* runs that this claim looks for: it need not choose, nor look at what it has woken."""
    return seen.live and not seen.rising and not request.alone and due <= request.limit


async def _rise(session: Session, request: ClaimRequest, n: int, seen: Look) -> None:
    workflow, version, _ = request.serves[n]
    given = (request.namespace, workflow, version, seen.now, RISE_MAX, seen.floor(n, 2))
    risen = await session.rows("claim.rising", RISING, *given)
    if risen:
        await session.rows("claim.rise", RISE, [key for (key,) in risen])


async def _lost(session: Session, request: ClaimRequest, doubtful: Sequence[int]) -> list[int]:
    """Return runs that an earlier claim took in a commit that got no answer: nobody works at them."""
    if not doubtful:
        return []
    return [key for (key,) in await session.rows("claim.doubtful", DOUBTFUL, request.owner, list(doubtful))][: request.limit]


async def _pick(session: Session, request: ClaimRequest, order: list[Queue], seen: Look) -> list[int]:
    """Lock so many of each queue and return their keys in *order*; what others have locked is left out."""
    counts = Counter(order)
    locked = {queue: deque(await _lock(session, request, queue, count, seen)) for queue, count in counts.items()}
    return [locked[queue].popleft() for queue in order if locked[queue]]


async def _lock(session: Session, request: ClaimRequest, queue: Queue, count: int, seen: Look) -> list[int]:
    n, lane = queue
    sql = LOCK_ALONE if request.alone else LOCK
    given = (*conditions(request, count), *request.serves[n], seen.now, lane, seen.floor(n, lane))
    return [key for (key,) in await session.rows("claim.lock", sql, *given)]


async def _take(session: Session, request: ClaimRequest, to: RunStatus, now: int, keys: list[int]) -> list[Record]:
    if not keys:
        return []
    taken = await session.rows("claim.take", TAKE, request.owner, now, to.value, keys)
    records = {record.run.key: record for record in map(record_of, taken)}
    return [records[key] for key in keys if key in records]
