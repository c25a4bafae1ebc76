"""Children: created with their parent's transition, told of in its inbox when they end, closed when it ends before them.

What a child tells is inserted whatever generation its parent is in, and read by whichever generation has the child: so a child that ends
while it becomes another generation's is told of in any order of the two commits.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Container, Sequence
from typing import Any, Final, LiteralString, NamedTuple

from romulus.core.machine import TERMINAL
from romulus.core.record import About, Run, StartedChild
from romulus.core.transition import Attach, NewChild, NewRun, Transition
from romulus.store.asking import HOW, ONCE_ASKED, TO_ASK

from .floors import Lists, lowest
from .rows import FIRST_GENERATION, ITSELF, generation_parts
from .session import Session
from .starting import create
from .statement import Statement

REQUESTS_MAX: Final = 1_000  # requests looked at at once

TAKEN: Final[LiteralString] = "id bigint, run bigint, key bigint"
UNTAKEN: Final[LiteralString] = (
    "SELECT x.id FROM took x WHERE NOT EXISTS (SELECT 1 FROM romulus.inbox i WHERE i.run = x.run AND i.key = x.key)"
)
ENDED: Final[LiteralString] = "id bigint, failed boolean, body bytea, info text"
INTO_CHILDREN: Final[LiteralString] = (
    "INSERT INTO romulus.children (child, parent, generation, seq, on_close) "
    "SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::text[])"
)
INTO_INBOX: Final[LiteralString] = (
    "WITH told AS (INSERT INTO romulus.inbox (run, about, seq, failed, body, info) "
    "SELECT run, about, seq, failed, '', info FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::boolean[], $5::text[]) "
    "WITH ORDINALITY x (run, about, seq, failed, info, n) ORDER BY n RETURNING run) "
    "INSERT INTO romulus.wakes (run) SELECT DISTINCT run FROM told ORDER BY run"
)
WHO_HAS: Final[LiteralString] = (
    "SELECT r.id, r.key, EXISTS (SELECT 1 FROM romulus.children c WHERE c.child = r.key AND c.parent = $3 AND c.generation <> $4), "
    "g.workflow, g.seeds, encode(g.input_digest, 'hex'), r.status "
    f"FROM {ITSELF} {FIRST_GENERATION}"
)
ATTACH: Final[LiteralString] = (
    "WITH mine AS (UPDATE romulus.children SET generation = $3, seq = $4, on_close = $5 WHERE child = $1 AND parent = $2 RETURNING child) "
    "SELECT r.id, r.status, coalesce(g.result, g.failure, '') FROM mine JOIN romulus.runs r ON r.key = mine.child "
    "JOIN romulus.generations g ON g.run = r.key AND g.number = r.generation WHERE r.finished_at IS NOT NULL "
    "AND NOT EXISTS (SELECT 1 FROM romulus.inbox i WHERE i.run = $2 AND i.child = r.key)"
)
ENDED_ALREADY: Final[LiteralString] = (
    "SELECT r.id, r.status, coalesce(g.result, g.failure, '') FROM romulus.runs r "
    "JOIN romulus.generations g ON g.run = r.key AND g.number = r.generation WHERE r.key = $1 AND r.finished_at IS NOT NULL"
)
TELL: Final[LiteralString] = (
    "INSERT INTO romulus.inbox (run, child, about, seq, failed, body, info) SELECT c.parent, c.child, 'child', 0, $2::boolean, $3::bytea, "
    "$4::text FROM romulus.children c JOIN romulus.runs p ON p.key = c.parent WHERE c.child = $1 AND p.finished_at IS NULL RETURNING run"
)
# A child taken over before the end of its generation was carried out at it is asked all the same.
ASK_TAKEN_OVER: Final[LiteralString] = (
    f"INSERT INTO romulus.to_close (parent, generation, seq, how, reason) SELECT c.parent, $2, x.seq, {HOW}, '' "
    "FROM unnest($3::bigint[], $4::integer[]) x (child, seq) JOIN romulus.children c ON c.child = x.child AND c.parent = $1 "
    "AND c.generation <> $2 JOIN romulus.runs r ON r.key = c.child AND r.finished_at IS NULL "
    f"WHERE {TO_ASK} AND c.generation IN (SELECT q.generation FROM romulus.to_close q WHERE q.parent = $1 AND q.seq IS NULL)"
)
ASK: Final[LiteralString] = (
    "INSERT INTO romulus.to_close (parent, generation, seq, how, reason) "
    "SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[], $5::text[])"
)
LISTED: Final[LiteralString] = (
    "SELECT c.seq, r.id, r.status, c.on_close FROM romulus.children c JOIN romulus.runs r ON r.key = c.child "
    "WHERE c.parent = $1 AND c.generation = $2 ORDER BY c.seq"
)
REQUESTS: Final[LiteralString] = (
    f"SELECT key FROM romulus.to_close WHERE key >= {lowest('to_close', '$2', '$3', '$4')} ORDER BY key LIMIT $1"
)
ASKED: Final[LiteralString] = (
    f"SELECT q.key, q.seq IS NULL, c.child, r.namespace, r.id, coalesce(q.how, {HOW}), coalesce(q.reason, '') FROM romulus.to_close q "
    "JOIN romulus.children c ON c.parent = q.parent AND c.generation = q.generation AND (q.seq IS NULL OR c.seq = q.seq) "
    "JOIN romulus.runs r ON r.key = c.child AND (r.finished_at IS NULL OR (q.how = 'retry' AND EXISTS "
    "(SELECT 1 FROM romulus.runs p WHERE p.key = c.parent AND p.generation = c.generation AND p.finished_at IS NULL))) "
    f"WHERE q.key = ANY($1::bigint[]) AND (q.seq IS NOT NULL OR {TO_ASK}) ORDER BY q.key, c.seq LIMIT $2"
)
CLOSED: Final[LiteralString] = (
    f"UPDATE romulus.children c SET on_close = {ONCE_ASKED} "
    "FROM unnest($1::bigint[], $2::text[]) x (child, how) WHERE c.child = x.child AND c.on_close = x.how"
)
# A child and its parent that end at once do not see each other: the one tells, the other forgets what it was told before.
UNREAD: Final[LiteralString] = (
    "SELECT DISTINCT i.run FROM romulus.inbox i CROSS JOIN LATERAL (SELECT 1 FROM romulus.runs WHERE key = i.run "
    "AND finished_at IS NOT NULL OFFSET 0) r LIMIT $1"
)
# Under the lock of the run: one that is reopened after it is told anew of the children that it takes over.
FORGET: Final[LiteralString] = (
    "DELETE FROM romulus.inbox i WHERE i.run IN (SELECT r.key FROM romulus.runs r WHERE r.key = ANY($1::bigint[]) "
    "AND r.finished_at IS NOT NULL ORDER BY r.key FOR UPDATE SKIP LOCKED)"
)
ALONE: Final[LiteralString] = "SELECT pg_try_advisory_xact_lock(1383034229, -2)"


class Asked(NamedTuple):
    """One request at one child."""

    request: int
    whole: bool  # of a generation that has ended, at all its children
    child: int
    namespace: str
    run_id: str
    how: str
    reason: str


# ---- parts of the parent's or child's own statement ---------------------------------------------


def take_messages(s: Statement, transitions: Sequence[Transition]) -> bool:
    """Add the check of the messages that a batch takes; return whether there are any."""
    taken = [(t.id, t.run, key) for t in transitions for key in t.taken]
    if taken:
        s.part(f"took AS MATERIALIZED (SELECT * FROM {s.rows(TAKEN, taken)} x)")
    return bool(taken)


def forget_messages(s: Statement) -> None:
    """Add the deletion of the messages that were taken."""
    s.part("untold AS (DELETE FROM romulus.inbox i USING took x JOIN done d ON d.id = x.id WHERE i.run = d.key AND i.key = x.key)")


def leave_family(s: Statement, ended: Sequence[Transition]) -> None:
    """Add what the end of a generation means for its children and for its parent; `done` has it."""
    if any(t.parent for t in ended):
        source = s.rows("id bigint", [(t.id,) for t in ended if t.parent])
        s.part(f"parents AS MATERIALIZED (SELECT d.key, d.generation FROM {source} x JOIN done d ON d.id = x.id)")
        s.part("left_alone AS (INSERT INTO romulus.to_close (parent, generation) SELECT key, generation FROM parents)")
        s.part("unread AS (DELETE FROM romulus.inbox i USING parents p WHERE i.run = p.key)")
    children = [t for t in ended if t.child and t.status in TERMINAL]
    if children:
        rows = [(t.id, t.status != "succeeded", t.result or t.failure or b"", _outcome(t.run_id, t.status)) for t in children]
        s.part(
            "told AS (INSERT INTO romulus.inbox (run, child, about, seq, failed, body, info) SELECT c.parent, c.child, 'child', 0, "
            "x.failed, "
            f"x.body, x.info FROM {s.rows(ENDED, rows)} x JOIN done d ON d.id = x.id JOIN romulus.children c ON c.child = d.key "
            "JOIN romulus.runs p ON p.key = c.parent WHERE p.finished_at IS NULL ORDER BY c.parent, c.child RETURNING run)"
        )
        s.part("parents_woken AS (INSERT INTO romulus.wakes (run) SELECT DISTINCT run FROM told ORDER BY run)")


# ---- further statements of the parent's transaction ----------------------------------------------


def has_family(t: Transition) -> bool:
    """Return whether *t* needs a transaction of several statements: a child's ID may be taken, which only shows at its insertion."""
    return bool(t.children or t.attaches or t.closing)


async def write_family(session: Session, transitions: Sequence[Transition]) -> None:
    """Create the children of *transitions*, whose guards held, take over others, and queue requests at them."""
    wanted = [(t, child) for t in transitions for child in t.children]
    if wanted:
        await _start(session, wanted)
    for t in transitions:
        if t.attaches:
            taken_over = [[each.key for each in t.attaches], [each.seq for each in t.attaches]]
            await session.rows("children.ask_taken_over", ASK_TAKEN_OVER, *generation_parts(t.generation), *taken_over)
        for attach in t.attaches:
            await _attach(session, t, attach)
    asked = [(*generation_parts(t.generation), c.seq, c.how, c.reason) for t in transitions for c in t.closing]
    if asked:
        await session.rows("children.close", ASK, *map(list, zip(*asked, strict=True)))


async def leave_after_change(session: Session, run: Run, ended: int, failure: bytes | None, *, over: bool) -> None:
    """Have the children of generation *ended* closed; *over*: the run itself has ended, and its parent is told."""
    await session.rows("children.close_all", "INSERT INTO romulus.to_close (parent, generation) VALUES ($1, $2)", run.key, ended)
    await session.rows("inbox.forget", "DELETE FROM romulus.inbox WHERE run = $1", run.key)
    if over and run.depth:
        await _tell(session, run.key, run.id, run.status, failure or b"")


# ---- what workers ask ------------------------------------------------------------------------------


async def tell_ended(session: Session, child: int) -> None:
    """Put how a child has ended, if it has, into its parent's inbox."""
    for run_id, status, body in await session.rows("children.outcome", ENDED_ALREADY, child):
        await _tell(session, child, run_id, status, bytes(body))


async def started(session: Session, generation: int) -> list[StartedChild]:
    """Return the children that *generation* has started or taken over, in command order."""
    return [StartedChild(*row) for row in await session.rows("children.list", LISTED, *generation_parts(generation))]


async def requests(session: Session, limit: int, known: Lists) -> list[int]:
    """Return the oldest requests at children. *known*: what a look has left."""
    return [key for (key,) in await session.rows("to_close.requests", REQUESTS, limit, *known.closes)]


async def asked(session: Session, limit: int, known: Lists) -> tuple[list[int], list[Asked]]:
    """Return the oldest requests, and up to *limit* of what they ask of children; none while another worker is at it.

    *known*: what a look has left.
    """
    if not await session.value("to_close.alone", ALONE):
        return [], []
    oldest = await requests(session, REQUESTS_MAX, known)
    return oldest, [Asked(*row) for row in await session.rows("to_close.asked", ASKED, oldest, limit)]


async def carried_out(session: Session, requests: Sequence[int], found: Sequence[Asked], limit: int, locked: Container[int]) -> None:
    """Note which children were asked, those *locked* for it, and delete the requests that have nothing left to ask."""
    done = [each for each in found if each.child in locked]
    if done:
        await session.rows("children.closed", CLOSED, [each.child for each in done], [each.how for each in done])
    left = {each.request for each in found if each.child not in locked}
    last = found[-1].request - found[-1].whole if len(found) == limit else None  # more of a whole generation's children may be left
    over = [key for key in requests if (last is None or key <= last) and key not in left]
    await session.rows("to_close.done", "DELETE FROM romulus.to_close WHERE key = ANY($1::bigint[])", over)


async def unread(session: Session, limit: int) -> list[int]:
    """Return ended runs that have messages: nobody will read them."""
    return [run for (run,) in await session.rows("inbox.unread", UNREAD, limit)]


async def forget(session: Session, runs: Sequence[int]) -> None:
    """Delete the messages of those of *runs* that have ended."""
    await session.rows("inbox.forget_unread", FORGET, list(runs))


# ---- inside ----------------------------------------------------------------------------------------


async def _start(session: Session, wanted: Sequence[tuple[Transition, NewChild]]) -> None:
    first: dict[tuple[str, str], NewChild] = {}
    for _, child in wanted:
        first.setdefault((child.run.namespace, child.run.id), child)
    keys = await create(session, [child.run for child in first.values()])
    made = [(t, c) for t, c in wanted if first[c.run.namespace, c.run.id] is c and (c.run.namespace, c.run.id) in keys]
    if made:
        rows = [(keys[c.run.namespace, c.run.id], *generation_parts(t.generation), c.seq, c.on_close) for t, c in made]
        await session.rows("children.insert", INTO_CHILDREN, *map(list, zip(*rows, strict=True)))
    messages: list[tuple[Any, ...]] = [(t.run, About.STARTED.value, c.seq, False, c.run.id) for t, c in made if c.tell]
    refused = [(t, c) for t, c in wanted if not any(c is kept for _, kept in made)] if len(made) < len(wanted) else []
    messages += [(t.run, About.CONFLICT.value, c.seq, True, await _who_has(session, t, c.run)) for t, c in refused]
    if messages:
        await session.rows("inbox.insert", INTO_INBOX, *map(list, zip(*messages, strict=True)))


async def _who_has(session: Session, t: Transition, run: NewRun) -> str:
    row = await session.row("children.taken", WHO_HAS, run.namespace, run.id, *generation_parts(t.generation))
    assert row is not None
    return _json(list(row))


async def _attach(session: Session, t: Transition, attach: Attach) -> None:
    parent, generation = generation_parts(t.generation)
    found = await session.rows("children.attach", ATTACH, attach.key, parent, generation, attach.seq, attach.on_close)
    if attach.again:
        await session.rows("inbox.forget_child", "DELETE FROM romulus.inbox WHERE run = $1 AND child = $2", parent, attach.key)
        return
    for run_id, status, body in found:
        await _tell(session, attach.key, run_id, status, bytes(body))
    await session.rows("inbox.wake_own", "INSERT INTO romulus.wakes (run) VALUES ($1)", parent)


async def _tell(session: Session, child: int, run_id: str, status: str, body: bytes) -> None:
    for (parent,) in await session.rows("inbox.ended", TELL, child, status != "succeeded", body, _outcome(run_id, status)):
        await session.rows("inbox.wake", "INSERT INTO romulus.wakes (run) VALUES ($1)", parent)


def _outcome(run_id: str, status: str) -> str:
    return _json([run_id, str(status)])


def _json(value: list[Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
