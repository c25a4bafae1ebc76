"""Claims: due runs taken under a new fence, oldest first and fairly between workflows."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.record import Record
from romulus.store.contract import ClaimRequest, Claims

from .connection import Row
from .reading import records
from .session import Session

Serve: TypeAlias = tuple[str, str, str]  # workflow, version, digest of the code here
Candidate: TypeAlias = tuple[int, int]  # queue_at, key

LOOK_MAX: Final = 100  # rows looked at for the next due time while other workers have code of their own
RISE_MAX: Final = 1000  # prioritised runs that rise to their rank in one claim

# Bindings: 1 namespace, 2 workflow, 3 version, 4 digest, 5 now, 6 losses, 7 digests of others (JSON), 8 prefer, 9 limit.
PAIR: Final[LiteralString] = "namespace = ?1 AND workflow = ?2 AND version = ?3 AND queue_at IS NOT NULL"
FITS: Final[LiteralString] = "(excluded = '' OR instr(' ' || excluded || ' ', ' ' || ?4 || ' ') = 0)"
SPREAD: Final[LiteralString] = f"{PAIR} AND {FITS} AND losses < ?6"
ALONE: Final[LiteralString] = f"{PAIR} AND {FITS} AND losses > 0 AND losses >= ?6"
READY: Final[LiteralString] = "wake_at <= ?5 AND (wake_at <= ?5 - ?8 OR digest NOT IN (SELECT value FROM json_each(?7)))"
DUE: Final[LiteralString] = "wake_at + CASE WHEN digest IN (SELECT value FROM json_each(?7)) THEN ?8 ELSE 0 END"


def _lane(what: LiteralString, lane: LiteralString, more: LiteralString = "") -> LiteralString:
    return f"SELECT * FROM (SELECT {what} FROM runs INDEXED BY runs_due WHERE {SPREAD} AND lane = {lane} {more} ORDER BY queue_at LIMIT ?9)"


def _alone(what: LiteralString, more: LiteralString = "") -> LiteralString:
    return f"SELECT {what} FROM runs INDEXED BY runs_lossy WHERE {ALONE} {more} ORDER BY queue_at LIMIT ?9"


TAKE: Final[LiteralString] = (
    "SELECT json_group_array(json_array(queue_at, key)) FROM ("
    + _lane("queue_at, key", "0", f"AND queue_at <= ?5 AND {READY}")
    + " UNION ALL "
    + _lane("queue_at, key", "1", f"AND {READY}")
    + " ORDER BY queue_at LIMIT ?9)"
)
TAKE_ALONE: Final[LiteralString] = f"SELECT json_group_array(json_array(queue_at, key)) FROM ({_alone('queue_at, key', f'AND {READY}')})"
NEXT: Final[LiteralString] = (
    f"SELECT min(due) FROM ({_lane(f'{DUE} AS due', '0')} UNION ALL {_lane(f'{DUE} AS due', '1')} UNION ALL {_lane(f'{DUE} AS due', '2')})"
)
NEXT_ALONE: Final[LiteralString] = f"SELECT min(due) FROM ({_alone(f'{DUE} AS due')})"
RISE: Final[LiteralString] = (
    "UPDATE runs SET lane = 1, queue_at = queue_at - priority * 10000000 WHERE key IN (SELECT key FROM runs INDEXED BY runs_due "
    "WHERE namespace = ? AND workflow = ? AND version = ? AND lane = 2 AND queue_at <= ? ORDER BY queue_at LIMIT ?)"
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


def claim(session: Session, request: ClaimRequest, to: RunStatus) -> Claims:
    """Claim due runs; see `Store.claim`. Nothing is written, and no lock taken, while nothing is due."""
    now = session.host.wall()
    due = session.read(lambda s: now if _asleep(s) else next_due(s, request, now))
    if due is None or due > now:
        return Claims((), due)
    return session.write(lambda s, at: _claim(s, request, to, at))


def next_due(session: Session, request: ClaimRequest, now: int) -> int | None:
    """Return when the next run that *request* fits is due; in the past: some are due now."""
    sql, most = (NEXT_ALONE if request.alone else NEXT), LOOK_MAX if request.others else 1
    found = [session.value("claim.next", sql, _given(request, serve, now, most)) for serve in request.serves]
    return min((due for due in found if due is not None), default=None)


def reclaim(session: Session, run: int, owner: str, fence: int, now: int) -> Record | None:
    """Take a new fence on a run that *owner* still owns under *fence*; see `Store.reclaim`."""
    sql = "UPDATE runs SET fence = max(fence + 1, ?4), updated_at = ?4 WHERE key = ?1 AND owner = ?2 AND fence = ?3"
    return records(session, [run])[0] if session.count("reclaim", sql, (run, owner, fence, now)) else None


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


def _claim(session: Session, request: ClaimRequest, to: RunStatus, now: int) -> Claims:
    if not session.run("claim.live", "SELECT 1 FROM workers WHERE id = ? AND NOT dead", (request.owner,)):
        return Claims((), None)  # marked dead meanwhile: its claims would be void at once
    _waken(session, now)
    for workflow, version, _ in request.serves:
        session.run("claim.rise", RISE, (request.namespace, workflow, version, now, RISE_MAX))
    keys = _pick(session, request, now)
    if keys:
        session.run("claim.take", CLAIM, (request.owner, now, to, json.dumps(keys)))
    return Claims(records(session, keys), next_due(session, request, now))


def _asleep(session: Session) -> bool:
    sql = "SELECT 1 FROM wakes w CROSS JOIN runs r ON r.key = w.run WHERE r.owner IS NULL LIMIT 1"
    return bool(session.run("claim.asleep", sql))


def _waken(session: Session, now: int) -> None:
    if _asleep(session):
        session.run("claim.waken", WAKEN, (now,))
        session.run("claim.woken", "DELETE FROM wakes WHERE run NOT IN (SELECT key FROM runs WHERE owner IS NOT NULL)")


def _pick(session: Session, request: ClaimRequest, now: int) -> list[int]:
    sql = TAKE_ALONE if request.alone else TAKE
    found = [json.loads(session.value("claim.pick", sql, _given(request, serve, now, request.limit))) for serve in request.serves]
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


def _given(request: ClaimRequest, serve: Serve, now: int, limit: int) -> Row:
    workflow, version, digest = serve
    others: Sequence[str] = request.others
    return (
        request.namespace, workflow, version, digest, now, request.alone_after, json.dumps(list(others)), request.prefer, limit,
    )  # fmt: skip
