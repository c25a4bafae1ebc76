"""Claims: due runs taken under a new fence, oldest first and fairly between workflows.

A look without locks says how many runs of each queue are due, and so how many to take of each; these are then locked by plain
top-level selects with SKIP LOCKED, queue by queue, so that workers that look at once take different runs and lock no more than they take.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest, Claims, Owned

from .matching import HEAD, match
from .matching import Queue as Match
from .rows import RECORD, record_of
from .session import Session
from .waking import waken

Serve: TypeAlias = tuple[str, str, str]  # workflow, version, digest of the code here
Queue: TypeAlias = tuple[int, int]  # number of the serve, lane

LOOK_MAX: Final = 100  # rows looked at for runs that wait for other code
RISE_MAX: Final = 1000  # prioritised runs that rise to their rank in one claim

# Parameters: 1 namespace, 2 digests of others, 3 prefer, 4 losses, 5 limit.
FITS: Final[LiteralString] = "(r.excluded = '' OR position(' ' || s.digest || ' ' IN ' ' || r.excluded || ' ') = 0)"
OF_PAIR: Final[LiteralString] = (
    f"r.namespace = $1 AND r.workflow = s.workflow AND r.version = s.version AND r.queue_at IS NOT NULL AND {FITS}"
)
SPREAD: Final[LiteralString] = f"{OF_PAIR} AND r.losses < $4"
ALONE: Final[LiteralString] = f"{OF_PAIR} AND r.losses > 0 AND r.losses >= $4"
READY: Final[LiteralString] = "r.wake_at <= c.now AND (r.wake_at <= c.now - $3::bigint OR r.digest <> ALL($2::text[]))"
DUE: Final[LiteralString] = "r.wake_at + CASE WHEN r.digest = ANY($2::text[]) THEN $3::bigint ELSE 0 END"
SERVES: Final[LiteralString] = "unnest($6::text[], $7::text[], $8::text[]) WITH ORDINALITY AS s (workflow, version, digest, n)"
AWAKE: Final[LiteralString] = (
    "EXISTS (SELECT 1 FROM romulus.workers WHERE id = $9 AND NOT dead), "
    "EXISTS (SELECT 1 FROM romulus.wakes w JOIN romulus.runs r ON r.key = w.run WHERE r.owner IS NULL), "
    "(SELECT value::integer FROM romulus.meta WHERE name = 'compatible'), "
    "EXISTS (SELECT 1 FROM romulus.wakes w JOIN romulus.runs r ON r.key = w.run WHERE r.owner = $9), "
    "EXISTS (SELECT 1 FROM romulus.to_close), "
    f"CASE s.n WHEN 1 THEN ARRAY(SELECT ROW(m.key, m.namespace, m.name, m.correlation_id) FROM ({HEAD.replace('$1', '$10')}) m) END"
)


def _first(what: LiteralString, where: LiteralString, limit: LiteralString) -> LiteralString:
    return f"(SELECT {what} FROM romulus.runs r WHERE {where} ORDER BY r.queue_at, r.key LIMIT {limit})"


LANE: Final[LiteralString] = f"{SPREAD} AND r.lane = "
RESERVED: Final[LiteralString] = _first("r.wake_at, r.digest", f"{LANE} 0 AND r.queue_at <= c.now", "100")
LOOK: Final[LiteralString] = (
    f"WITH c AS MATERIALIZED (SELECT romulus.clock() AS now) SELECT c.now, {AWAKE}, "
    f"EXISTS (SELECT 1 FROM romulus.runs r WHERE {ALONE} AND {READY}), "
    f"ARRAY{_first('r.queue_at', f'{LANE} 0 AND r.queue_at <= c.now AND {READY}', '$5')}, "
    f"ARRAY{_first('r.queue_at', f'{LANE} 1 AND {READY}', '$5')}, "
    f"{_first('r.queue_at', f'{LANE} 2', '1')}, "
    f"least({_first(DUE, f'{LANE} 0 AND r.queue_at > c.now', '1')}, {_first(DUE, f'{LANE} 2', '1')}, "
    f"CASE WHEN cardinality($2::text[]) > 0 THEN (SELECT min(x.wake_at) + $3::bigint FROM {RESERVED} x WHERE x.digest = ANY($2::text[]) "
    "AND x.wake_at > c.now - $3::bigint) END) "
    f"FROM c CROSS JOIN {SERVES} ORDER BY s.n"
)
LOOK_ALONE: Final[LiteralString] = (
    f"WITH c AS MATERIALIZED (SELECT romulus.clock() AS now) SELECT c.now, {AWAKE}, "
    f"true, ARRAY(SELECT r.queue_at FROM romulus.runs r WHERE {ALONE} AND {READY} ORDER BY r.queue_at, r.key LIMIT $5), "
    f"'{{}}'::bigint[], NULL::bigint, "
    f"(SELECT min(x.due) FROM (SELECT {DUE} AS due FROM romulus.runs r WHERE {ALONE} AND NOT ({READY}) ORDER BY r.queue_at, "
    f"r.key LIMIT 100) x) "
    f"FROM c CROSS JOIN {SERVES} ORDER BY s.n"
)
ONE: Final[LiteralString] = "(SELECT $6::text AS workflow, $7::text AS version, $8::text AS digest) s, (SELECT $9::bigint AS now) c"
LOCK: Final[LiteralString] = (
    f"SELECT r.key FROM romulus.runs r, {ONE} WHERE {SPREAD} AND r.lane = $10 AND ($10 <> 0 OR r.queue_at <= c.now) AND {READY} "
    "AND r.owner IS NULL ORDER BY r.queue_at, r.key LIMIT $5 FOR UPDATE OF r SKIP LOCKED"
)
LOCK_ALONE: Final[LiteralString] = (
    f"SELECT r.key FROM romulus.runs r, {ONE} WHERE {ALONE} AND $10::integer = 0 AND {READY} AND r.owner IS NULL "
    "ORDER BY r.queue_at, r.key LIMIT $5 FOR UPDATE OF r SKIP LOCKED"
)
RISING: Final[LiteralString] = (
    "SELECT key FROM romulus.runs WHERE namespace = $1 AND workflow = $2 AND version = $3 AND lane = 2 AND queue_at <= $4 "
    "AND queue_at IS NOT NULL ORDER BY queue_at LIMIT $5 FOR UPDATE SKIP LOCKED"
)
RISE: Final[LiteralString] = (
    "UPDATE romulus.runs SET lane = 1, queue_at = queue_at - priority::bigint * 10000000 WHERE key = ANY($1::bigint[])"
)
TAKE: Final[LiteralString] = (
    "UPDATE romulus.runs r SET owner = $1, fence = greatest(r.fence + 1, $2), status = $3, started_at = coalesce(r.started_at, $2), "
    "deadline = coalesce(r.deadline, $2 + g.timeout), wake_at = NULL, lane = 0, queue_at = NULL, updated_at = $2 "
    "FROM romulus.generations g WHERE r.key = ANY($4::bigint[]) AND g.run = r.key AND g.number = r.generation AND "
    f"(r.owner IS NULL OR r.owner = $1) RETURNING {RECORD}"
)
RECLAIM: Final[LiteralString] = (
    "WITH c AS MATERIALIZED (SELECT romulus.clock() AS now) UPDATE romulus.runs r SET fence = greatest(r.fence + 1, "
    "c.now), updated_at = c.now "
    "FROM c, romulus.generations g WHERE r.key = $1 AND r.owner = $2 AND r.fence = $3 AND g.run = r.key AND g.number = r.generation "
    f"RETURNING {RECORD}"
)
DOUBTFUL: Final[LiteralString] = "SELECT key FROM romulus.runs WHERE owner = $1 AND updated_at = ANY($2::bigint[]) ORDER BY key FOR UPDATE"


@dataclass(slots=True)
class Look:
    """What is due now, and when the next is; and what else waits."""

    now: int = 0
    live: bool = True
    asleep: bool = False  # a parked run has a wake
    schema: int = 0  # the oldest schema version whose release may work on the schema that is there now
    wakes: bool = False  # a run of the worker's own has a wake
    closing: bool = False
    alone: bool = False  # a run that lost `alone_after` claims or more is due
    queued: list[tuple[int, Match]] = field(default_factory=list[tuple[int, Match]])  # the head of `to_match`
    ready: dict[Queue, list[int]] = field(default_factory=dict[Queue, list[int]])  # queue_at of the first due ones
    rising: list[int] = field(default_factory=list[int])  # serves with prioritised runs that have become due
    later: int | None = None  # store µs when the next run becomes due

    @property
    def idle(self) -> bool:
        """Return whether there is nothing to match, to take or to wake."""
        return not (self.queued or self.asleep or self.ready or self.rising)


async def look(session: Session, request: ClaimRequest, match_max: int = 0) -> Look:
    """Look at the queues that *request* serves, and at the first *match_max* rows of `to_match`."""
    seen = Look()
    rows = await session.rows("claim.look", LOOK_ALONE if request.alone else LOOK, *_given(request), match_max)
    for n, row in enumerate(rows):
        seen.now, seen.live, seen.asleep, seen.schema, seen.wakes, seen.closing, queued, alone, plain, ranked, rising, later = row
        if queued:
            seen.queued = [(key, (namespace, name, correlation)) for key, namespace, name, correlation in queued]
        seen.alone = seen.alone or alone
        seen.ready |= {(n, lane): list(due) for lane, due in enumerate((plain, ranked)) if due}
        if rising is not None and rising <= seen.now:
            seen.rising.append(n)
        if later is not None and (seen.later is None or later < seen.later):
            seen.later = later
    return seen


async def claim(session: Session, request: ClaimRequest, to: RunStatus, seen: Look, doubtful: Sequence[int], times: list[int]) -> Claims:
    """Match and claim what *seen* says is there, inside the open transaction.

    *doubtful*: times of claims whose commit had no answer; *times* gets this one's, should its own have none.
    """
    matched = await match(session, seen.queued, request.match_max) if seen.queued else set[int]()
    full, woken = len(seen.queued) == request.match_max, set[int]()
    if matched or seen.asleep or seen.rising:
        woken = await waken(session)
        for n in seen.rising:
            await _rise(session, request.namespace, request.serves[n], seen.now)
        seen = await look(session, request)
    if not seen.live:
        return Claims((), None)  # marked dead meanwhile: its claims would be void at once
    times.append(seen.now)
    keys = await _lost(session, request, doubtful)
    keys += await _pick(session, request, turns(seen.ready, request.limit - len(keys)), seen.now)
    left = sum(map(len, seen.ready.values())) > request.limit
    records = await _take(session, request, to, seen.now, keys)
    # A run may have been in the middle of parking: it is looked at once more, after this commit.
    return claims(records, seen, seen.now if left else seen.later, unmatched=bool(full or matched - woken))


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


async def _rise(session: Session, namespace: str, serve: Serve, now: int) -> None:
    workflow, version, _ = serve
    risen = await session.rows("claim.rising", RISING, namespace, workflow, version, now, RISE_MAX)
    if risen:
        await session.rows("claim.rise", RISE, [key for (key,) in risen])


async def _lost(session: Session, request: ClaimRequest, doubtful: Sequence[int]) -> list[int]:
    """Return runs that an earlier claim took in a commit that got no answer: nobody works at them."""
    if not doubtful:
        return []
    return [key for (key,) in await session.rows("claim.doubtful", DOUBTFUL, request.owner, list(doubtful))][: request.limit]


async def _pick(session: Session, request: ClaimRequest, order: list[Queue], now: int) -> list[int]:
    """Lock so many of each queue and return their keys in *order*; what others have locked is left out."""
    counts = Counter(order)
    locked = {queue: deque(await _lock(session, request, queue, count, now)) for queue, count in counts.items()}
    return [locked[queue].popleft() for queue in order if locked[queue]]


async def _lock(session: Session, request: ClaimRequest, queue: Queue, count: int, now: int) -> list[int]:
    n, lane = queue
    sql = LOCK_ALONE if request.alone else LOCK
    given = (*_conditions(request, count), *request.serves[n], now, lane)
    return [key for (key,) in await session.rows("claim.lock", sql, *given)]


async def _take(session: Session, request: ClaimRequest, to: RunStatus, now: int, keys: list[int]) -> list[Record]:
    if not keys:
        return []
    taken = await session.rows("claim.take", TAKE, request.owner, now, to.value, keys)
    records = {record.run.key: record for record in map(record_of, taken)}
    return [records[key] for key in keys if key in records]


def _conditions(request: ClaimRequest, limit: int) -> tuple[Any, ...]:
    return (request.namespace, list(request.others), request.prefer, request.alone_after, limit)


def _given(request: ClaimRequest) -> tuple[Any, ...]:
    workflows, versions, digests = ([serve[n] for serve in request.serves] for n in range(3))
    return (*_conditions(request, request.limit + 1), workflows, versions, digests, request.owner)
