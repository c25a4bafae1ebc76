"""A look at the queues, without locks: how many runs of each are due, when the next is, and whether a parked run was woken.

It passes over what the look before found empty (`floors`), so that its cost is that of what is due and of what came since.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, LiteralString, TypeAlias

from romulus.store.contract import ClaimRequest

from .floors import BOTTOM, FRESH_MAX, SNAPSHOT, SNAPSHOT_COLUMNS, TOP, Lists, Queues, lists, lowest_of
from .matching import HEAD, ToMatch
from .rows import Row, served
from .session import Session

Serve: TypeAlias = tuple[str, str, str]  # workflow, version, digest of the code here
Queue: TypeAlias = tuple[int, int]  # number of the serve, lane

MANY: Final[LiteralString] = "1000"
WAKES_MAX: Final = int(MANY)  # wakes whose runs are looked at: where there are more, some are taken to be of every kind

# Parameters: 1 namespace, 2 digests of others, 3 prefer, 4 losses, 5 limit. Of a look also: 6 owner, 7-9 serves, 10 rows of `to_match`,
# 11-14 what the look before at the lists left, 15 whom it saw running. Of one at the queues also: 15 the end of the snapshot of the look
# before at these, 16 when that was, 17-20 its floors of each serve, 21 fresh runs at most, and 22 and 23 who was running at both looks.
FITS: Final[LiteralString] = "(r.excluded = '' OR position(' ' || s.digest || ' ' IN ' ' || r.excluded || ' ') = 0)"
# What comes before the parameters of `served` says which run.
SERVED: Final[LiteralString] = f"s (workflow, version, digest) WHERE r.workflow = s.workflow AND r.version = s.version AND {FITS}"
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
CLOCK: Final[LiteralString] = "c AS MATERIALIZED (SELECT romulus.clock() AS now)"
# A run is reached by its wake, and not by its owner, who has had very many.
WAKES: Final[LiteralString] = (
    f"w AS MATERIALIZED (SELECT min(x.key) AS first, count(*) = {MANY} AS many, bool_or(x.owner = '') AS asleep, "
    "bool_or(x.owner = $6) AS mine FROM (SELECT w.key, (SELECT coalesce(r.owner, '') FROM romulus.runs r WHERE r.key = w.run) AS owner "
    f"FROM romulus.wakes w WHERE w.key >= (SELECT wake FROM l) ORDER BY w.key LIMIT {MANY}) x)"
)
SEEN: Final[LiteralString] = (
    "c.now, EXISTS (SELECT 1 FROM romulus.workers WHERE id = $6 AND NOT dead), w.many OR coalesce(w.asleep, false), "
    "w.many OR coalesce(w.mine, false), CASE s.n WHEN 1 THEN ARRAY(SELECT ROW(m.key, m.namespace, m.name, m.correlation_id, m.returned) "
    f"FROM ({HEAD.replace('$1', 'greatest($10::integer, 1)')}) m) END, "
    f"(SELECT value::integer FROM romulus.meta WHERE name = 'compatible'), w.first, {lowest_of('to_close', 'close')}, {SNAPSHOT}"
)
SEEN_COLUMNS: Final = 6
PREFIX: Final = SEEN_COLUMNS + 2 + SNAPSHOT_COLUMNS


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
RAN: Final[LiteralString] = f" UNION ALL {QUEUED} AND r.queued_by = ANY($23::bigint[])"


def _floors_of(ran: LiteralString) -> LiteralString:
    return (
        f"fresh AS MATERIALIZED (SELECT * FROM ({QUEUED} AND r.queued_by >= $15 AND r.queued_by <= {GIVEN}{ran}) f LIMIT $21), "
        "lowest AS MATERIALIZED (SELECT workflow, version, min(queue_at) FILTER (WHERE lane = 0) AS head, min(queue_at) FILTER "
        "(WHERE lane = 1) AS ranked, min(queue_at) FILTER (WHERE lane = 2) AS rising, min(queue_at) FILTER (WHERE lane = 0 AND "
        "queue_at > c.now) AS later FROM fresh, c WHERE namespace = $1 GROUP BY workflow, version), "
        "s AS MATERIALIZED (SELECT g.n, g.workflow, g.version, g.digest, least(g.plain, x.head) AS plain, "
        "least(g.ranked, x.ranked) AS ranked, least(g.rising, x.rising) AS rising, "
        "CASE WHEN c.now >= $16 THEN least(g.later, x.later) ELSE 0 END AS later "
        "FROM unnest($7::text[], $8::text[], $9::text[], $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[]) WITH ORDINALITY "
        "AS g (workflow, version, digest, plain, ranked, rising, later, n) CROSS JOIN c "
        "LEFT JOIN lowest x ON x.workflow = g.workflow AND x.version = g.version)"
    )


RESERVED: Final[LiteralString] = _first("r.wake_at, r.digest", PLAIN, "100")
FOUND: Final[LiteralString] = (
    f"SELECT {SEEN}, EXISTS (SELECT 1 FROM romulus.runs r WHERE {ALONE} AND {READY}), "
    f"ARRAY{_first('r.queue_at', f'{PLAIN} AND {READY}', '$5')}, ARRAY{_first('r.queue_at', f'{RANKED} AND {READY}', '$5')}, "
    "rises.queue_at, least(later.due, rises.due, "
    f"CASE WHEN cardinality($2::text[]) > 0 THEN (SELECT min(x.wake_at) + $3::bigint FROM {RESERVED} x WHERE x.digest = ANY($2::text[]) "
    "AND x.wake_at > c.now - $3::bigint) END), (SELECT count(*) FROM fresh), "
    f"coalesce({_first('r.queue_at', PLAIN, '1')}, later.queue_at), {_first('r.queue_at', RANKED, '1')}, rises.queue_at, later.queue_at "
    f"FROM c CROSS JOIN w CROSS JOIN s LEFT JOIN LATERAL {_first(f'r.queue_at, {DUE} AS due', LATER, '1')} later ON true "
    f"LEFT JOIN LATERAL {_first(f'r.queue_at, {DUE} AS due', RISING, '1')} rises ON true ORDER BY s.n"
)
LOOK: Final[LiteralString] = f"WITH {CLOCK}, {lists('$11', '$12', '$13', '$14', '$22')}, {WAKES}, {_floors_of(RAN)} {FOUND}"
# Most looks come after one that saw nobody at work; each part of a statement takes its time, also where it finds nothing.
LOOK_QUIET: Final[LiteralString] = f"WITH {CLOCK}, {lists('$11', '$12', '$13', '$14', None)}, {WAKES}, {_floors_of('')} {FOUND}"
LOOK_ALONE: Final[LiteralString] = (
    f"WITH {CLOCK}, {lists('$11', '$12', '$13', '$14', '$15')}, {WAKES} SELECT {SEEN}, true, "
    f"ARRAY(SELECT r.queue_at FROM romulus.runs r WHERE {ALONE} AND {READY} ORDER BY r.queue_at, r.key LIMIT $5), "
    f"'{{}}'::bigint[], NULL::bigint, "
    f"(SELECT min(x.due) FROM (SELECT {DUE} AS due FROM romulus.runs r WHERE {ALONE} AND NOT ({READY}) ORDER BY r.queue_at, "
    f"r.key LIMIT 100) x), 0 FROM c CROSS JOIN w "
    "CROSS JOIN unnest($7::text[], $8::text[], $9::text[]) WITH ORDINALITY AS s (workflow, version, digest, n) ORDER BY s.n"
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
    queued: list[ToMatch] = field(default_factory=list[ToMatch])  # the head of `to_match`
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
    rows = await session.rows("claim.look", *statement(request, match_max, queues, lists))
    seen, fresh, floors = Look(), 0, list[tuple[int, int, int, int]]()
    for row in rows:
        if not floors:
            _see(seen, row, match_max)
        alone, plain, ranked, rising, later, fresh, *lowest = row[PREFIX:]
        n = len(floors)
        seen.alone = seen.alone or alone
        seen.ready |= {(n, lane): list(due) for lane, due in enumerate((plain, ranked)) if due}
        if rising is not None and rising <= seen.now:
            seen.rising.append(n)
        if later is not None and (seen.later is None or later < seen.later):
            seen.later = later
        floors.append(_floors(lowest))
    seen.queues = Queues(seen.lists.snapshot, seen.now, () if request.alone else floors)
    return seen, fresh


def statement(request: ClaimRequest, match_max: int, queues: Queues | None, known: Lists | None) -> tuple[Any, ...]:
    """Return the statement of a look and its parameters."""
    known, before = known or Lists(), queues or Queues()
    shared = (*conditions(request, request.limit + 1), request.owner, *served(request.serves), match_max, *known.keys)
    if request.alone:
        return LOOK_ALONE, *shared, known.snapshot.running
    floors = before.floors or [(BOTTOM, BOTTOM, BOTTOM, BOTTOM)] * len(request.serves)
    columns = ([each[n] for each in floors] for n in range(4))
    given = (*shared, before.snapshot.end, before.now, *columns, FRESH_MAX + 1)
    if known.snapshot.quiet and before.snapshot.quiet:
        return LOOK_QUIET, *given
    return LOOK, *given, known.snapshot.running, before.snapshot.running


def conditions(request: ClaimRequest, limit: int) -> tuple[Any, ...]:
    """Return the parameters that every statement at the queues begins with."""
    return (request.namespace, list(request.others), request.prefer, request.alone_after, limit)


def what(request: ClaimRequest) -> tuple[Any, ...]:
    """Return what *request* looks for: a look at the same leaves its floors for the next."""
    return (request.namespace, tuple(request.serves), request.alone, request.alone_after)


def _see(seen: Look, row: Row, match_max: int) -> None:
    """Take what does not depend on the serve from the first row of a look."""
    now, seen.live, seen.asleep, seen.wakes, queued, seen.schema, wake, close = row[: SEEN_COLUMNS + 2]
    seen.closing = close is not None
    heads = [ToMatch.of(head) for head in queued]
    seen.queued = heads[:match_max]
    seen.lists = Lists.of((wake, heads[0].key if heads else None, close, *row[SEEN_COLUMNS + 2 : PREFIX]))
    seen.queues = Queues(seen.lists.snapshot, now)


def _floors(lowest: Row) -> tuple[int, int, int, int]:
    plain, ranked, rising, later = (TOP if value is None else int(value) for value in lowest or (None,) * 4)
    return plain, ranked, rising, later
