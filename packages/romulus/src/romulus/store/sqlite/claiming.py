"""Claims: due runs taken under a new fence, oldest first and fairly between workflows."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final, LiteralString, NamedTuple, TypeAlias, TypeVar

from romulus.core.errors import CommitUnknown
from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest, Claims, Owned
from romulus.store.hub import Ready

from .connection import Row
from .faults import FileBusy
from .matching import match_within
from .reading import records
from .session import Session

T = TypeVar("T")
WithClaim: TypeAlias = Callable[[Session, ClaimRequest, RunStatus, int], tuple[T, Claims]]  # what is brought is written, and claimed
Candidate: TypeAlias = tuple[int, int]  # queue_at, key

LOOK_MAX: Final = 100  # rows looked at for the next due time while other workers have code of their own
RISE_MAX: Final = 1000  # prioritised runs that rise to their rank in one claim

# Bindings: 1 namespace, 2 serves (JSON), 3 now, 4 losses, 5 digests of others (JSON), 6 prefer, 7 limit of each queue, 8 owner.
# One statement for all that a worker serves, whatever their number: each one more costs a hand-over of the interpreter lock.
SERVES: Final[LiteralString] = "json_each(?2) s"
PAIR: Final[LiteralString] = "namespace = ?1 AND workflow = s.value ->> 0 AND version = s.value ->> 1 AND queue_at IS NOT NULL"
FITS: Final[LiteralString] = "(excluded = '' OR instr(' ' || excluded || ' ', ' ' || (s.value ->> 2) || ' ') = 0)"
SPREAD: Final[LiteralString] = f"{PAIR} AND {FITS} AND losses < ?4"
ALONE: Final[LiteralString] = f"{PAIR} AND {FITS} AND losses > 0 AND losses >= ?4"
READY: Final[LiteralString] = "wake_at <= ?3 AND (wake_at <= ?3 - ?6 OR digest NOT IN (SELECT value FROM json_each(?5)))"
DUE: Final[LiteralString] = "wake_at + CASE WHEN digest IN (SELECT value FROM json_each(?5)) THEN ?6 ELSE 0 END"
ASLEEP: Final[LiteralString] = "SELECT 1 FROM wakes w CROSS JOIN runs r ON r.key = w.run WHERE r.owner IS NULL"
OWN: Final[LiteralString] = "SELECT 1 FROM wakes w CROSS JOIN runs r ON r.key = w.run WHERE r.owner = ?8"


def _lane(what: LiteralString, lane: LiteralString, more: LiteralString = "") -> LiteralString:
    return f"SELECT * FROM (SELECT {what} FROM runs INDEXED BY runs_due WHERE {SPREAD} AND lane = {lane} {more} ORDER BY queue_at LIMIT ?7)"


def _alone(what: LiteralString, more: LiteralString = "") -> LiteralString:
    return f"SELECT {what} FROM runs INDEXED BY runs_lossy WHERE {ALONE} {more} ORDER BY queue_at LIMIT ?7"


def _of_each(queue: LiteralString) -> LiteralString:
    """Return the query for a list of lists: of each of `serves`, what *queue* selects."""
    return f"SELECT json_group_array(json((SELECT json_group_array(json_array(queue_at, key)) FROM ({queue})))) FROM {SERVES}"


TAKE: Final[LiteralString] = _of_each(
    _lane("queue_at, key", "0", f"AND queue_at <= ?3 AND {READY}")
    + " UNION ALL "
    + _lane("queue_at, key", "1", f"AND {READY}")
    + " ORDER BY queue_at LIMIT ?7"
)
TAKE_ALONE: Final[LiteralString] = _of_each(_alone("queue_at, key", f"AND {READY}"))
DUE_LANES: Final[LiteralString] = (
    f"{_lane(f'{DUE} AS due', '0')} UNION ALL {_lane(f'{DUE} AS due', '1')} UNION ALL {_lane(f'{DUE} AS due', '2')}"
)
LOOK: Final[LiteralString] = (
    f"SELECT (SELECT min((SELECT min(due) FROM ({DUE_LANES}))) FROM {SERVES}), "
    f"(SELECT min((SELECT min(due) FROM ({_alone(f'{DUE} AS due')}))) FROM {SERVES}), "
    f"EXISTS (SELECT 1 FROM to_match), EXISTS ({ASLEEP}), EXISTS ({OWN}), EXISTS (SELECT 1 FROM to_close)"
)
RISE: Final[LiteralString] = (
    "UPDATE runs SET lane = 1, queue_at = queue_at - priority * 10000000 WHERE key IN (SELECT r.key FROM json_each(?2) s "
    "CROSS JOIN runs r INDEXED BY runs_due WHERE r.namespace = ?1 AND r.workflow = s.value ->> 0 AND r.version = s.value ->> 1 "
    "AND r.lane = 2 AND r.queue_at <= ?3 LIMIT ?4)"
)
# Bindings: 1 namespace, 2 serves (JSON), 3 now, 4 owner.
LIVE: Final[LiteralString] = (
    f"SELECT EXISTS (SELECT 1 FROM workers WHERE id = ?4 AND NOT dead), EXISTS ({ASLEEP}), EXISTS (SELECT 1 FROM {SERVES} "
    f"CROSS JOIN runs INDEXED BY runs_due WHERE {PAIR} AND lane = 2 AND queue_at <= ?3)"
)
CLAIM: Final[LiteralString] = (
    "UPDATE runs SET owner = ?1, fence = max(fence + 1, ?2), status = ?3, started_at = coalesce(started_at, ?2), "
    "deadline = coalesce(deadline, ?2 + (SELECT g.timeout FROM generations g WHERE g.key = generation_key)), "
    "wake_at = NULL, lane = 0, queue_at = NULL, updated_at = ?2 WHERE key IN (SELECT value FROM json_each(?4)) AND owner IS NULL"
)
WAKEN: Final[LiteralString] = (
    "UPDATE runs SET wake_at = min(coalesce(wake_at, ?1), ?1), lane = CASE priority WHEN 0 THEN 0 ELSE 1 END, "
    "queue_at = min(coalesce(wake_at, ?1), ?1) - priority * 10000000 "
    "WHERE key IN (SELECT run FROM wakes) AND owner IS NULL AND status = 'waiting'"
)


class Look(NamedTuple):
    """What there is to do for a worker: store µs of what is due next, None for nothing; and what waits."""

    next: int | None
    alone: int | None  # the next run that lost `alone_after` claims or more
    unmatched: int
    asleep: int  # wakes of unowned runs
    wakes: int  # wakes of the worker's own
    closing: int


def claim(session: Session, request: ClaimRequest, to: RunStatus) -> tuple[Claims, bool]:
    """Claim due runs, and return whether there was something to match; see `Store.claim`.

    Nothing is written, and no lock taken, while there is nothing to do.
    """
    now = session.clock.now()
    seen = session.read(lambda s: look(s, request, now))
    due = seen.alone if request.alone else seen.next
    if seen.asleep or (seen.unmatched and request.match_max) or (due is not None and due <= now):
        unmatched = bool(seen.unmatched)
        return session.write(lambda s, at: claim_within(s, request, to, at, unmatched=unmatched)), unmatched
    return claims((), seen, request, now), False


def claim_within(session: Session, request: ClaimRequest, to: RunStatus, now: int, *, unmatched: bool) -> Claims:
    """Claim due runs inside the open transaction. *unmatched*: there may be something to match."""
    if request.match_max and unmatched:
        match_within(session, request.match_max)
    given = (request.namespace, serves_of(request), now)
    ((live, asleep, rising),) = session.run("claim.live", LIVE, (*given, request.owner))
    if not live:
        return Claims((), None)  # marked dead meanwhile: its claims would be void at once
    if asleep:
        session.run("claim.waken", WAKEN, (now,))
        session.run("claim.woken", "DELETE FROM wakes WHERE run NOT IN (SELECT key FROM runs WHERE owner IS NOT NULL)")
    if rising:
        session.run("claim.rise", RISE, (*given, RISE_MAX))
    taken = take(session, request, to, _pick(session, request, now), now)
    return claims(taken, look(session, request, now), request, now)


def take(session: Session, request: ClaimRequest, to: RunStatus, keys: Sequence[int], now: int) -> list[Record]:
    """Claim these runs, which nobody owns, inside the open transaction."""
    if keys:
        session.run("claim.take", CLAIM, (request.owner, now, to, json.dumps(keys)))
    return records(session, keys)


def beside(
    session: Session, work: Callable[[Session, int], T], with_claim: WithClaim[T], workers: Iterable[Ready]
) -> tuple[T, Ready | None]:  # fmt: skip
    """Write *work*; the first of *workers* that would claim now does so in the same commit, by *with_claim*. Return which has."""
    for worker in workers:
        wanted = worker.request()
        if wanted is not None:
            return _beside(session, work, with_claim, worker, *wanted)
    return session.write(work), None


def look(session: Session, request: ClaimRequest, now: int) -> Look:
    """Return what there is to do, in one statement."""
    ((*found,),) = session.run("claim.look", LOOK, _given(request, now, LOOK_MAX if request.others else 1))
    return Look(*found)


def reclaim(session: Session, run: int, owner: str, fence: int, now: int) -> Record | None:
    """Take a new fence on a run that *owner* still owns under *fence*; see `Store.reclaim`."""
    sql = "UPDATE runs SET fence = max(fence + 1, ?4), updated_at = ?4 WHERE key = ?1 AND owner = ?2 AND fence = ?3"
    return records(session, [run])[0] if session.count("reclaim", sql, (run, owner, fence, now)) else None


def owned(session: Session, owner: str) -> list[Owned]:
    """Return every run that *owner* owns; see `Store.owned`."""
    rows = session.run("owned", "SELECT key, fence, namespace, id FROM runs WHERE owner = ?", (owner,))
    return [Owned(*row) for row in rows]


def pulse(session: Session, owner: str) -> list[Record]:
    """Take the `wakes` of runs that *owner* owns; see `Store.pulse`."""
    sql = "SELECT DISTINCT w.run FROM wakes w CROSS JOIN runs r ON r.key = w.run WHERE r.owner = ?"
    if not session.read(lambda s: s.run("pulse.look", sql, (owner,))):
        return []
    return session.write(lambda s, _: _pulse(s, owner))


def _pulse(session: Session, owner: str) -> list[Record]:
    taken = session.run(
        "pulse.take",
        "DELETE FROM wakes WHERE key IN (SELECT w.key FROM wakes w CROSS JOIN runs r ON r.key = w.run WHERE r.owner = ?) RETURNING run",
        (owner,),
    )
    return records(session, sorted({run for (run,) in taken}))


def _beside(
    session: Session, work: Callable[[Session, int], T], with_claim: WithClaim[T], worker: Ready, request: ClaimRequest, to: RunStatus
) -> tuple[T, Ready | None]:  # fmt: skip
    try:
        answers, claimed = session.write(lambda s, now: with_claim(s, request, to, now))
    except FileBusy:
        raise
    except CommitUnknown:
        worker.doubt()
        raise
    except Exception:  # noqa: BLE001  nothing was written: the work's own error comes again, a claim's is for the worker's own look
        return session.write(work), None
    worker.claimed(request, claimed)
    return answers, worker


def claims(found: Sequence[Record], seen: Look, request: ClaimRequest, now: int) -> Claims:
    """Return what was claimed, with what else was seen."""
    return Claims(
        found, seen.alone if request.alone else seen.next, unmatched=bool(seen.unmatched), wakes=bool(seen.wakes),
        closing=bool(seen.closing), alone=seen.alone is not None and seen.alone <= now,
    )  # fmt: skip


def _pick(session: Session, request: ClaimRequest, now: int) -> list[int]:
    found = json.loads(session.value("claim.pick", TAKE_ALONE if request.alone else TAKE, _given(request, now, request.limit)[:7]))
    return interleave([[(queue_at, key) for queue_at, key in queue] for queue in found if queue], request.limit)


def interleave(queues: list[list[Candidate]], limit: int) -> list[int]:
    """Return at most *limit* keys: one of each queue in turn, the queue with the oldest head first."""
    queues = sorted(queues)
    picked: list[int] = []
    for turn in range(max(map(len, queues), default=0)):
        picked += [queue[turn][1] for queue in queues if turn < len(queue)]
        if len(picked) >= limit:
            break
    return picked[:limit]


def _given(request: ClaimRequest, now: int, limit: int) -> Row:
    others = json.dumps(list(request.others))
    return (request.namespace, serves_of(request), now, request.alone_after, others, request.prefer, limit, request.owner)


def serves_of(request: ClaimRequest) -> str:
    """Return what a worker serves, as statements about queues are given it."""
    return json.dumps([list(serve) for serve in request.serves])
