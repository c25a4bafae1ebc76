"""Matching events with waits, after each side's own commit.

Whoever matches a queue (namespace, name, correlation ID) holds its advisory lock, so an event is offered by one matcher at a time. The
match itself is a guarded update of the wait row and nowhere else. Waits are locked in the order of (run, seq), as closing them does. No
lock of a wait is waited for: it may be a caller's transaction that has closed it, and nobody knows for how long. A queue of which nothing
more could be matched for that is blocked: queued again, and left alone for a moment by whoever found it so (`Aside`).
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, LiteralString, NamedTuple, TypeAlias

from romulus.core.ports import Host

from .floors import LOWEST, SNAPSHOT, Lists, lists
from .rows import Row
from .session import Session

Queue: TypeAlias = tuple[str, str, str]  # namespace, name, correlation ID


class ToMatch(NamedTuple):
    """A row of `to_match`."""

    key: int
    queue: Queue
    returned: bool  # it has an event that a closed wait may have given back

    @classmethod
    def of(cls, row: Row) -> ToMatch:
        """Return the row of one of `HEAD`."""
        key, namespace, name, correlation_id, returned = row
        return cls(key, (namespace, name, correlation_id), returned)


LOCKS: Final = 256  # queues share so many locks: a server's lock table is bounded
LOCK_CLASS: Final[LiteralString] = "1383034229"  # "Romu": advisory locks of others have other numbers
ASIDE_MIN, ASIDE_MAX = 20_000, 1_000_000  # µs that a blocked queue is left alone, doubled each time
DIGITS: Final[tuple[LiteralString, ...]] = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
PAIRS_MAX: Final = 100  # of one queue in one statement
TAKERS_MAX: Final = 10  # times another wait is looked for when the one chosen has just been closed

# In a statement with the CTE `l` of the lists.
HEAD: Final[LiteralString] = (
    "SELECT key, namespace, name, correlation_id, event IS NOT NULL AS returned FROM romulus.to_match "
    "WHERE key >= (SELECT match FROM l) ORDER BY key LIMIT $1"
)
LOOK: Final[LiteralString] = (
    f"WITH {lists('$2', '$3', '$4', '$5', '$6')} "
    f"SELECT ARRAY(SELECT ROW(m.key, m.namespace, m.name, m.correlation_id, m.returned) FROM ({HEAD}) m), {LOWEST}, {SNAPSHOT}"
)
QUEUES: Final[LiteralString] = "unnest($1::text[], $2::text[], $3::text[]) q (namespace, name, correlation_id)"
# Events that closed waits have given back: unmatched again, unless another wait holds them or a run has used them.
RETURNED: Final[LiteralString] = f"""
WITH back AS (DELETE FROM romulus.to_match t USING {QUEUES} WHERE t.namespace = q.namespace AND t.name = q.name
    AND t.correlation_id = q.correlation_id AND t.event IS NOT NULL RETURNING t.namespace, t.name, t.correlation_id, t.event)
INSERT INTO romulus.unmatched (namespace, name, correlation_id, arrival)
SELECT DISTINCT namespace, name, correlation_id, event FROM back b WHERE NOT EXISTS (SELECT 1 FROM romulus.waits w WHERE w.event = b.event)
    AND NOT EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = b.event AND d.how <> 'late') ON CONFLICT DO NOTHING
"""
# Oldest with oldest, up to `PAIRS_MAX` of each queue; a queue is odd when a shared wait or an event that came too late is in it. One that
# was given an event back is left: that may be its oldest. By an expression, a wait can be reached by its key alone: where statistics said
# that hardly any is open, the index of open ones was read from end to end.
PAIR: Final[LiteralString] = f"""
WITH w AS MATERIALIZED (SELECT q.*, x.run, x.seq, x.shared, row_number() OVER (PARTITION BY q.namespace, q.name, q.correlation_id
        ORDER BY x.key) AS n FROM {QUEUES} CROSS JOIN LATERAL (SELECT w.key, w.run, w.seq, w.shared FROM romulus.waits w
        WHERE w.namespace = q.namespace AND w.name = q.name AND w.correlation_id = q.correlation_id AND w.event IS NULL
        ORDER BY w.key LIMIT 100) x),
e AS MATERIALIZED (SELECT q.*, x.arrival, row_number() OVER (PARTITION BY q.namespace, q.name, q.correlation_id
        ORDER BY x.arrival) AS n, EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = x.arrival OFFSET 0) AS before
        FROM {QUEUES} CROSS JOIN LATERAL (SELECT u.arrival FROM romulus.unmatched u WHERE u.namespace = q.namespace AND u.name = q.name
        AND u.correlation_id = q.correlation_id ORDER BY u.arrival LIMIT 100) x),
back AS MATERIALIZED (SELECT DISTINCT q.* FROM {QUEUES} JOIN romulus.to_match t ON t.namespace = q.namespace AND t.name = q.name
    AND t.correlation_id = q.correlation_id WHERE t.event IS NOT NULL),
odd AS MATERIALIZED (SELECT namespace, name, correlation_id FROM w WHERE shared UNION
    SELECT namespace, name, correlation_id FROM e WHERE before),
pairs AS MATERIALIZED (SELECT w.*, e.arrival FROM w JOIN e USING (namespace, name, correlation_id, n)),
plain AS MATERIALIZED (SELECT * FROM pairs b WHERE NOT EXISTS (SELECT 1 FROM (SELECT * FROM odd UNION ALL SELECT * FROM back) o
    WHERE o.namespace = b.namespace AND o.name = b.name AND o.correlation_id = b.correlation_id)),
locked AS MATERIALIZED (SELECT x.run, x.seq, p.arrival FROM plain p JOIN romulus.waits x ON x.run = p.run AND x.seq = p.seq
    WHERE (x.event + 0) IS NULL ORDER BY x.run, x.seq FOR UPDATE OF x SKIP LOCKED),
matched AS (UPDATE romulus.waits x SET event = l.arrival FROM locked l WHERE x.run = l.run AND x.seq = l.seq AND (x.event + 0) IS NULL
    RETURNING x.run, x.event, x.namespace, x.name, x.correlation_id),
taken AS (DELETE FROM romulus.unmatched u USING matched m WHERE u.namespace = m.namespace AND u.name = m.name
    AND u.correlation_id = m.correlation_id AND u.arrival = m.event),
woken AS (INSERT INTO romulus.wakes (run) SELECT run FROM matched ORDER BY run),
done AS (DELETE FROM romulus.to_match WHERE key = ANY($4::bigint[]) AND event IS NULL)
SELECT b.namespace, b.name, b.correlation_id, EXISTS (SELECT 1 FROM back o WHERE o.namespace = b.namespace AND o.name = b.name
    AND o.correlation_id = b.correlation_id), EXISTS (SELECT 1 FROM odd o WHERE o.namespace = b.namespace AND o.name = b.name
    AND o.correlation_id = b.correlation_id), max(b.n), ARRAY(SELECT m.run FROM matched m WHERE m.namespace = b.namespace
    AND m.name = b.name AND m.correlation_id = b.correlation_id) FROM pairs b GROUP BY b.namespace, b.name, b.correlation_id
"""
UNMATCHED: Final[LiteralString] = (
    "SELECT arrival FROM romulus.unmatched WHERE namespace = $1 AND name = $2 AND correlation_id = $3 ORDER BY arrival LIMIT $4"
)
OFFERED: Final[LiteralString] = (
    "SELECT w.run, w.seq, w.shared FROM romulus.waits w WHERE w.namespace = $1 AND w.name = $2 AND w.correlation_id = $3 "
    "AND w.event IS NULL AND (w.include_late OR NOT EXISTS (SELECT 1 FROM romulus.dealt d WHERE d.event = $4 AND d.run = w.run "
    "AND d.how = 'late')) ORDER BY w.key"
)
# To all that it is offered, or to none: a shared wait that was passed over would never have it.
GIVE: Final[LiteralString] = """
WITH locked AS MATERIALIZED (SELECT w.run, w.seq FROM unnest($1::bigint[], $2::integer[]) t (run, seq)
    JOIN romulus.waits w ON w.run = t.run AND w.seq = t.seq WHERE (w.event + 0) IS NULL ORDER BY w.run, w.seq FOR UPDATE OF w
    SKIP LOCKED),
matched AS (UPDATE romulus.waits w SET event = $3 FROM locked l WHERE w.run = l.run AND w.seq = l.seq AND (w.event + 0) IS NULL
    AND (SELECT count(*) FROM locked) = cardinality($1)
    RETURNING w.run, w.seq, w.namespace, w.name, w.correlation_id),
taken AS (DELETE FROM romulus.unmatched u USING (SELECT DISTINCT namespace, name, correlation_id FROM matched) m
    WHERE u.namespace = m.namespace AND u.name = m.name AND u.correlation_id = m.correlation_id AND u.arrival = $3),
woken AS (INSERT INTO romulus.wakes (run) SELECT run FROM matched ORDER BY run)
SELECT run, seq FROM matched
"""
AGAIN: Final[LiteralString] = f"INSERT INTO romulus.to_match (namespace, name, correlation_id) SELECT * FROM {QUEUES}"


class Matched(NamedTuple):
    """What was matched: runs that got an event, and queues in which a wait is locked by somebody else."""

    runs: set[int]
    blocked: list[Queue]


class Aside:
    """Queues that were found blocked, and until when they are left alone: a look passes over them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._left: dict[Queue, tuple[int, int]] = {}  # until (host's monotonic µs), the pause

    def put(self, queues: Iterable[Queue], least: int = ASIDE_MIN) -> None:
        """Leave *queues* alone, longer each time."""
        now = self._host.monotonic()
        for queue in queues:
            _, before = self._left.get(queue, (0, 0))
            pause = min(max(before * 2, least), ASIDE_MAX)
            self._left[queue] = now + pause, pause

    def free(self, rows: Sequence[ToMatch]) -> list[ToMatch]:
        """Return those of *rows* whose queues may be matched now, and forget what has been left alone for long enough."""
        if not self._left:
            return list(rows)
        now = self._host.monotonic()
        self._left = {queue: left for queue, left in self._left.items() if left[0] + ASIDE_MAX > now}
        return [row for row in rows if self._left.get(row.queue, (0, 0))[0] <= now]

    @property
    def pause(self) -> int | None:
        """Return µs until the first of them may be matched; None: there is none."""
        now = self._host.monotonic()
        return min((until - now for until, _ in self._left.values() if until > now), default=None)


async def head(session: Session, limit: int, known: Lists | None = None) -> tuple[list[ToMatch], Lists]:
    """Return the first *limit* rows of `to_match`; *known*: what the look before at the lists has left, as this one does."""
    row = await session.row("match.head", LOOK, limit, *(known or Lists()).given)
    assert row is not None
    rows, seen = row[0], Lists.of(row[1:])
    if known is not None and known.snapshot.server != seen.snapshot.server:
        return await head(session, limit)
    return [ToMatch.of(row) for row in rows], seen


def locks(rows: Iterable[tuple[int, Queue] | ToMatch]) -> LiteralString:
    """Return the statement that keeps other matchers from the queues of *rows* until the transaction ends; "" where there are none."""
    # Always in one order.
    numbers: LiteralString = ", ".join(_literal(lock) for lock in sorted({_lock(row[1]) for row in rows}))
    return numbers and f"SELECT pg_advisory_xact_lock({LOCK_CLASS}, x) FROM unnest(ARRAY[{numbers}]::integer[]) x"


async def match(session: Session, rows: Sequence[ToMatch], limit: int) -> Matched:
    """Match the queues that *rows* speak of, inside the open transaction, which has their `locks`."""
    queues = sorted({row.queue for row in rows})
    if any(row.returned for row in rows):
        await session.rows("match.returned", RETURNED, *_columns(queues))
    odd, matched = await _match_plain(session, queues, [row.key for row in rows])
    for queue in odd:
        await _match_odd(session, queue, limit, matched)
    if matched.blocked:
        await session.rows("match.again", AGAIN, *_columns(matched.blocked))
    return matched


async def _match_plain(session: Session, queues: Sequence[Queue], rows: Sequence[int]) -> tuple[list[Queue], Matched]:
    """Pair oldest with oldest, for all queues at once, until no plain pair is left, and consume *rows* of `to_match`.

    Return also the queues that are odd. A queue is looked at again only if it may hold another pair: all that one look takes were pairs,
    a wait was locked or has been closed, or an event was given back since *rows* were seen. It is blocked when nothing of it is matched.
    """
    odd: list[Queue] = []
    matched = Matched(set(), [])
    while queues:
        found = await session.rows("match.pair", PAIR, *_columns(queues), rows)
        back = [(namespace, name, correlation) for namespace, name, correlation, returned, *_ in found if returned]
        if back:
            await session.rows("match.returned", RETURNED, *_columns(back))
        odd += [(namespace, name, correlation) for namespace, name, correlation, returned, is_odd, *_ in found if is_odd and not returned]
        matched.runs.update(run for *_, runs in found for run in runs)
        more = [
            ((namespace, name, correlation), bool(runs))
            for namespace, name, correlation, returned, is_odd, pairs, runs in found
            if not returned and not is_odd and (pairs >= PAIRS_MAX or len(runs) < pairs)
        ]
        matched.blocked.extend(queue for queue, some in more if not some)
        queues = back + [queue for queue, some in more if some]
        rows = []
    return odd, matched


async def _match_odd(session: Session, queue: Queue, limit: int, matched: Matched) -> None:
    """Offer each event of one queue to every shared wait and to the oldest other one, leaving out runs it came too late for."""
    for (event,) in await session.rows("match.events", UNMATCHED, *queue, limit):
        given = await _offer(session, queue, event)
        if given is None:
            matched.blocked.append(queue)
            return
        matched.runs.update(given)


async def _offer(session: Session, queue: Queue, event: int) -> list[int] | None:
    """Give an event to all that it is offered and return their runs; None: a wait of these is locked, also when looked at once more."""
    before: list[Row] = []
    for _ in range(TAKERS_MAX):
        offered = await session.rows("match.offered", OFFERED, *queue, event)
        takers = [row for row in offered if row[2]] + [row for row in offered if not row[2]][:1]
        if not takers:
            return []
        if takers == before:
            return None
        given = await session.rows("match.give", GIVE, [run for run, _, _ in takers], [seq for _, seq, _ in takers], event)
        if given:
            return [run for run, _ in given]
        before = takers
    return None


def _lock(queue: Queue) -> int:
    return int.from_bytes(blake2b("\0".join(queue).encode(), digest_size=4).digest(), "big") % LOCKS


def _literal(number: int) -> LiteralString:
    """Return a number as it stands in a statement."""
    return "".join(DIGITS[int(digit)] for digit in str(number))


def _columns(queues: Sequence[Queue]) -> list[list[Any]]:
    return [list(column) for column in zip(*queues, strict=True)]
