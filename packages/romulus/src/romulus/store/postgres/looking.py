"""A look at the queues, without locks: how many runs of each are due, when the next is, and whether a parked run was woken.

It passes over what the look before found empty (`floors`), so that its cost is that of what is due and of what came since.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, TypeAlias

from romulus.store.contract import ClaimRequest

from .floors import BOTTOM, FRESH_MAX, LOWEST, LOWEST_COLUMNS, SNAPSHOT, SNAPSHOT_COLUMNS, TOP, Lists, Queues, lists
from .matching import HEAD
from .matching import Queue as Match
from .rows import Row
from .session import Session

Serve: TypeAlias = tuple[str, str, str]  # workflow, version, digest of the code here
Queue: TypeAlias = tuple[int, int]  # number of the serve, lane

# Parameters: 1 namespace, 2 digests of others, 3 prefer, 4 losses, 5 limit. Of a look also: 6 owner, 7-9 serves, 10 rows of `to_match`,
# 11-15 what the look before at the lists left, 16 and 17 the snapshot of the one at these queues, 18 when that was, 19-22 its floors of
# each serve, 23 fresh runs at most.
FITS: Final[LiteralString] = "(r.excluded = '' OR position(' ' || s.digest || ' ' IN ' ' || r.excluded || ' ') = 0)"
OF_PAIR: Final[LiteralString] = f"r.workflow = s.workflow AND r.version = s.version AND r.queue_at IS NOT NULL AND {FITS}"
# The namespace as the one index of each has it: see `schema`.
SPREAD: Final[LiteralString] = f"(r.namespace || '') = $1 AND {OF_PAIR} AND r.losses < $4"
ALONE: Final[LiteralString] = f"('' || r.namespace) = $1 AND {OF_PAIR} AND r.losses > 0 AND r.losses >= $4"
READY: Final[LiteralString] = "r.wake_at <= c.now AND (r.wake_at <= c.now - $3::bigint OR r.digest <> ALL($2::text[]))"
DUE: Final[LiteralString] = "r.wake_at + CASE WHEN r.digest = ANY($2::text[]) THEN $3::bigint ELSE 0 END"
PLAIN: Final[LiteralString] = f"{SPREAD} AND r.lane = 0 AND r.queue_at >= s.plain AND r.queue_at <= c.now"
RANKED: Final[LiteralString] = f"{SPREAD} AND r.lane = 1 AND r.queue_at >= s.ranked"
RISING: Final[LiteralString] = f"{SPREAD} AND r.lane = 2 AND r.queue_at >= s.rising"
LATER: Final[LiteralString] = f"{SPREAD} AND r.lane = 0 AND r.queue_at >= s.later AND r.queue_at > c.now"
LISTS: Final[LiteralString] = lists("$11", "$12", "$13", "$14", "$15")
CLOCK: Final[LiteralString] = "c AS MATERIALIZED (SELECT romulus.clock() AS now)"
# A run is reached by its wake, and not by its owner, who has had very many.
WAKES: Final[LiteralString] = (
    "EXISTS (SELECT 1 FROM romulus.wakes w JOIN romulus.runs r ON r.key = w.run WHERE w.key >= (SELECT wake FROM l) AND "
)
SEEN: Final[LiteralString] = (
    f"c.now, EXISTS (SELECT 1 FROM romulus.workers WHERE id = $6 AND NOT dead), {WAKES} r.owner IS NULL), {WAKES} (r.owner || '') = $6), "
    "EXISTS (SELECT 1 FROM romulus.to_close x WHERE x.key >= (SELECT close FROM l)), "
    "CASE s.n WHEN 1 THEN ARRAY(SELECT ROW(m.key, m.namespace, m.name, m.correlation_id) FROM "
    f"({HEAD.replace('$1', '$10')}) m) END, "
    f"(SELECT value::integer FROM romulus.meta WHERE name = 'compatible'), {LOWEST}, {SNAPSHOT}"
)
SEEN_COLUMNS: Final = 7
PREFIX: Final = SEEN_COLUMNS + LOWEST_COLUMNS + SNAPSHOT_COLUMNS


def _first(what: LiteralString, where: LiteralString, limit: LiteralString) -> LiteralString:
    return f"(SELECT {what} FROM romulus.runs r WHERE {where} ORDER BY r.queue_at, r.key LIMIT {limit})"


# What the look before did not see, and how far it lowers each floor. Numbers that this server has not given yet came with a dump of
# another: such runs were there before any look.
GIVEN: Final[LiteralString] = (
    "(SELECT greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_xact_id_if_assigned()::text::bigint))"
)
QUEUED: Final[LiteralString] = (
    "SELECT r.namespace, r.workflow, r.version, r.lane, r.queue_at FROM romulus.runs r WHERE (r.queue_at + 0) IS NOT NULL"
)
FLOORS: Final[LiteralString] = (
    f"fresh AS MATERIALIZED (SELECT * FROM ({QUEUED} AND r.queued_by >= $16 AND r.queued_by <= {GIVEN} "
    f"UNION ALL {QUEUED} AND r.queued_by = ANY($17::bigint[])) f LIMIT $23), "
    "lowest AS MATERIALIZED (SELECT workflow, version, lane, min(queue_at) AS head, min(queue_at) FILTER (WHERE queue_at > c.now) AS later "
    "FROM fresh, c WHERE namespace = $1 GROUP BY workflow, version, lane), "
    "s AS MATERIALIZED (SELECT g.n, g.workflow, g.version, g.digest, least(g.plain, x.head) AS plain, least(g.ranked, y.head) AS ranked, "
    "least(g.rising, z.head) AS rising, CASE WHEN c.now >= $18 THEN least(g.later, x.later) ELSE 0 END AS later "
    "FROM unnest($7::text[], $8::text[], $9::text[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[]) WITH ORDINALITY "
    "AS g (workflow, version, digest, plain, ranked, rising, later, n) CROSS JOIN c "
    "LEFT JOIN lowest x ON x.workflow = g.workflow AND x.version = g.version AND x.lane = 0 "
    "LEFT JOIN lowest y ON y.workflow = g.workflow AND y.version = g.version AND y.lane = 1 "
    "LEFT JOIN lowest z ON z.workflow = g.workflow AND z.version = g.version AND z.lane = 2)"
)
RESERVED: Final[LiteralString] = _first("r.wake_at, r.digest", PLAIN, "100")
LOOK: Final[LiteralString] = (
    f"WITH {CLOCK}, {LISTS}, {FLOORS} SELECT {SEEN}, EXISTS (SELECT 1 FROM romulus.runs r WHERE {ALONE} AND {READY}), "
    f"ARRAY{_first('r.queue_at', f'{PLAIN} AND {READY}', '$5')}, ARRAY{_first('r.queue_at', f'{RANKED} AND {READY}', '$5')}, "
    "rises.queue_at, least(later.due, rises.due, "
    f"CASE WHEN cardinality($2::text[]) > 0 THEN (SELECT min(x.wake_at) + $3::bigint FROM {RESERVED} x WHERE x.digest = ANY($2::text[]) "
    "AND x.wake_at > c.now - $3::bigint) END), (SELECT count(*) FROM fresh), "
    f"coalesce({_first('r.queue_at', PLAIN, '1')}, later.queue_at), {_first('r.queue_at', RANKED, '1')}, rises.queue_at, later.queue_at "
    f"FROM c CROSS JOIN s LEFT JOIN LATERAL {_first(f'r.queue_at, {DUE} AS due', LATER, '1')} later ON true "
    f"LEFT JOIN LATERAL {_first(f'r.queue_at, {DUE} AS due', RISING, '1')} rises ON true ORDER BY s.n"
)
LOOK_ALONE: Final[LiteralString] = (
    f"WITH {CLOCK}, {LISTS} SELECT {SEEN}, true, "
    f"ARRAY(SELECT r.queue_at FROM romulus.runs r WHERE {ALONE} AND {READY} ORDER BY r.queue_at, r.key LIMIT $5), "
    f"'{{}}'::bigint[], NULL::bigint, "
    f"(SELECT min(x.due) FROM (SELECT {DUE} AS due FROM romulus.runs r WHERE {ALONE} AND NOT ({READY}) ORDER BY r.queue_at, "
    f"r.key LIMIT 100) x), 0 "
    "FROM c CROSS JOIN unnest($7::text[], $8::text[], $9::text[]) WITH ORDINALITY AS s (workflow, version, digest, n) ORDER BY s.n"
)


@dataclass(slots=True)
class Look:
    """What is due now, and when the next is; and what else waits."""

    queues: Queues = field(default_factory=Queues)
    lists: Lists = field(default_factory=Lists)
    whole: bool = True  # it passed over nothing
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
    def now(self) -> int:
        """Return the store's clock."""
        return self.queues.now

    @property
    def idle(self) -> bool:
        """Return whether there is nothing to match, to take or to wake."""
        return not (self.queued or self.asleep or self.ready or self.rising)

    def floor(self, n: int, lane: int) -> int:
        """Return the lowest queue_at there is in a queue."""
        return self.queues.floors[n][lane] if self.queues.floors else BOTTOM


async def look(
    session: Session, request: ClaimRequest, match_max: int = 0, queues: Queues | None = None, lists: Lists | None = None
) -> Look:  # fmt: skip
    """Look at the queues that *request* serves, and at the first *match_max* rows of `to_match`.

    *queues*, *lists*: what the looks before at the same have left; None: look at everything.
    """
    seen, fresh = await _look(session, request, match_max, queues, lists)
    servers = {known.snapshot.server for known in (queues, lists) if known is not None}
    if fresh <= FRESH_MAX and servers <= {seen.lists.snapshot.server}:
        seen.whole = queues is None
        return seen
    return (await _look(session, request, match_max, None, None))[0]


async def _look(
    session: Session, request: ClaimRequest, match_max: int, queues: Queues | None, lists: Lists | None
) -> tuple[Look, int]:  # fmt: skip
    rows = await session.rows("claim.look", LOOK_ALONE if request.alone else LOOK, *given(request, match_max, queues, lists))
    seen, fresh, floors = Look(), 0, list[tuple[int, int, int, int]]()
    for n, (row, found) in enumerate((row[:PREFIX], row[PREFIX:]) for row in rows):
        now, seen.live, seen.asleep, seen.wakes, seen.closing, queued, seen.schema = row[:SEEN_COLUMNS]
        seen.lists = Lists.of(row[SEEN_COLUMNS:])
        alone, plain, ranked, rising, later, fresh, *lowest = found
        if queued:
            seen.queued = [(key, (namespace, name, correlation)) for key, namespace, name, correlation in queued]
        seen.alone = seen.alone or alone
        seen.ready |= {(n, lane): list(due) for lane, due in enumerate((plain, ranked)) if due}
        if rising is not None and rising <= now:
            seen.rising.append(n)
        if later is not None and (seen.later is None or later < seen.later):
            seen.later = later
        floors.append(_floors(lowest))
        seen.queues = Queues(seen.lists.snapshot, now, () if request.alone else floors)
    return seen, fresh


def given(request: ClaimRequest, match_max: int, queues: Queues | None, lists: Lists | None) -> tuple[Any, ...]:
    """Return the parameters of a look."""
    serves = ([serve[n] for serve in request.serves] for n in range(3))
    shared = (*conditions(request, request.limit + 1), request.owner, *serves, match_max, *(lists or Lists()).given)
    if request.alone:
        return shared
    before = queues or Queues()
    floors = before.floors or [(BOTTOM, BOTTOM, BOTTOM, BOTTOM)] * len(request.serves)
    columns = ([each[n] for each in floors] for n in range(4))
    return (*shared, before.snapshot.end, before.snapshot.running, before.now, *columns, FRESH_MAX + 1)


def conditions(request: ClaimRequest, limit: int) -> tuple[Any, ...]:
    """Return the parameters that every statement at the queues begins with."""
    return (request.namespace, list(request.others), request.prefer, request.alone_after, limit)


def what(request: ClaimRequest) -> tuple[Any, ...]:
    """Return what *request* looks for: a look at the same leaves its floors for the next."""
    return (request.namespace, tuple(request.serves), request.alone, request.alone_after)


def _floors(lowest: Row) -> tuple[int, int, int, int]:
    plain, ranked, rising, later = (TOP if value is None else int(value) for value in lowest or (None,) * 4)
    return plain, ranked, rising, later
