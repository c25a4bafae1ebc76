"""Children: created by their parent's transition, told of in its inbox when they end, closed when it ends before them."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple

from romulus.core.machine import RunStatus
from romulus.core.record import About, StartedChild
from romulus.core.transition import NewChild, NewRun, Transition
from romulus.store.asking import HOW, ONCE_ASKED, TO_ASK

from .bulk import Bulk
from .connection import Row
from .rows import gathered, read_all
from .session import Session
from .starting import create, names_taken

CHILDREN: Final = Bulk("children.insert", "INSERT INTO children (child, parent, generation, seq, on_close) ", 5)
MESSAGES: Final = Bulk("inbox.insert", "INSERT INTO inbox (run, about, seq, failed, body, info) ", 6)
TAKEN_INFO: Final = (
    "SELECT json_array(r.id, r.key, EXISTS (SELECT 1 FROM children c WHERE c.child = r.key AND c.parent = ?3 AND c.generation <> ?4), "
    "g.workflow, g.seeds, hex(g.input_digest), r.status) FROM runs r JOIN generations g ON g.run = r.key AND g.number = 1 "
    "WHERE r.namespace = ?1 AND r.id = ?2"
)
# A parent that has gone on to another generation, or has ended, is told nothing.
TELL: Final = Bulk(
    "inbox.ended",
    "INSERT INTO inbox (run, about, seq, failed, body, info) SELECT c.parent, 'child', c.seq, t.column2 <> 'succeeded', t.column3, "
    "json_array(r.id, t.column2) FROM (",
    3,
    ") AS t CROSS JOIN runs r ON r.key = t.column1 CROSS JOIN children c ON c.child = r.key "
    "CROSS JOIN runs p ON p.key = c.parent AND p.generation_key = c.generation WHERE p.finished_at IS NULL",
)
WAKE_PARENTS: Final = (
    "INSERT INTO wakes (run) SELECT DISTINCT c.parent FROM json_each(?) t CROSS JOIN children c ON c.child = t.value "
    "CROSS JOIN runs p ON p.key = c.parent AND p.generation_key = c.generation WHERE p.finished_at IS NULL"
)
ATTACH: Final = "UPDATE children SET generation = ?3, seq = ?4, on_close = ?5 WHERE child = ?1 AND parent = ?2"
ENDED_ALREADY: Final = (
    "SELECT r.status, coalesce(g.result, g.failure, X'') FROM runs r JOIN generations g ON g.key = r.generation_key "
    "WHERE r.key = ? AND r.finished_at IS NOT NULL"
)
CLOSE_ALL: Final = (
    "INSERT INTO to_close (generation) SELECT t.value FROM json_each(?) t WHERE EXISTS "
    "(SELECT 1 FROM children c WHERE c.generation = t.value AND c.on_close <> 'abandon')"
)
# A child taken over before the end of its generation was carried out at it is asked all the same.
ASK_TAKEN_OVER: Final[LiteralString] = (
    f"INSERT INTO to_close (generation, seq, how, reason) SELECT ?1, t.value ->> 1, {HOW}, '' FROM json_each(?2) t "
    "CROSS JOIN children c ON c.child = t.value ->> 0 AND c.parent = ?3 AND c.generation <> ?1 "
    f"CROSS JOIN runs r ON r.key = c.child AND r.finished_at IS NULL WHERE {TO_ASK} "
    "AND c.generation IN (SELECT q.generation FROM to_close q WHERE q.seq IS NULL)"
)
CLOSE_ONE: Final = Bulk("children.close", "INSERT INTO to_close (generation, seq, how, reason) ", 4)
FORGET_INBOX: Final = "DELETE FROM inbox WHERE run IN (SELECT value FROM json_each(?))"
LISTED: Final = gathered(
    "t.seq, r.id, r.status, t.on_close", "FROM (SELECT * FROM children WHERE generation = ? ORDER BY seq) t JOIN runs r ON r.key = t.child"
)
# What is to be done at children, oldest request first. One is retried while its parent is in the generation that asked for it.
ASKED: Final[LiteralString] = (
    f"SELECT q.key, q.seq IS NULL, c.child, r.namespace, r.id, coalesce(q.how, {HOW}), coalesce(q.reason, '') FROM to_close q "
    "CROSS JOIN children c ON c.generation = q.generation AND (q.seq IS NULL OR c.seq = q.seq) "
    "CROSS JOIN runs r ON r.key = c.child AND (r.finished_at IS NULL OR (q.how = 'retry' AND EXISTS "
    "(SELECT 1 FROM runs p WHERE p.key = c.parent AND p.generation_key = c.generation AND p.finished_at IS NULL))) "
    f"WHERE (q.seq IS NOT NULL OR {TO_ASK}) ORDER BY q.key LIMIT ?"
)
CLOSED: Final[LiteralString] = (
    f"UPDATE children SET on_close = {ONCE_ASKED} FROM json_each(?) t "
    "WHERE children.child = t.value ->> 0 AND children.on_close = t.value ->> 1"
)


class Asked(NamedTuple):
    """One request at one child."""

    request: int
    whole: int  # 1: of a generation that has ended, at all its children
    child: int
    namespace: str
    run_id: str
    how: str
    reason: str


# ---- written by the parent's transition ---------------------------------------------------------


def start_children(session: Session, transitions: Sequence[Transition], now: int) -> None:
    """Create the children of *transitions*; where an ID is taken, tell the parent instead."""
    wanted = [(t, child) for t in transitions for child in t.children]
    if wanted:
        _start(session, wanted, now)
    asked = [(t.generation, c.seq, c.how, c.reason) for t in transitions for c in t.closing]
    CLOSE_ONE.write(session, asked)


def attach_children(session: Session, transitions: Sequence[Transition]) -> None:
    """Give children of earlier generations to those of *transitions*, after all that ends with the same commit has ended."""
    for t in transitions:
        if t.attaches:
            taken_over = json.dumps([(attach.key, attach.seq) for attach in t.attaches])
            session.run("children.ask_taken_over", ASK_TAKEN_OVER, (t.generation, taken_over, t.run))
        for attach in t.attaches:
            session.run("children.attach", ATTACH, (attach.key, t.run, t.generation, attach.seq, attach.on_close))
            if not attach.again:
                tell_ended(session, attach.key)


def take_messages(session: Session, transitions: Sequence[Transition]) -> bool:
    """Delete the inbox messages that *transitions* have taken; False: one is not there (the caller rolls back)."""
    taken = [(t.run, key) for t in transitions for key in t.taken]
    if not taken:
        return True
    sql = (
        "DELETE FROM inbox WHERE key IN (SELECT i.key FROM json_each(?) t CROSS JOIN inbox i ON i.key = t.value ->> 1 "
        "AND i.run = t.value ->> 0)"
    )
    return session.count("inbox.take", sql, (json.dumps(taken),)) == len(taken)


def tell_parents(session: Session, ended: Sequence[tuple[int, RunStatus, bytes | None]]) -> None:
    """Put how children (run key, status, result or failure) ended into their parents' inboxes, and wake those."""
    if ended:
        TELL.write(session, [(run, status, body or b"") for run, status, body in ended])
        session.run("inbox.wake", WAKE_PARENTS, (json.dumps([run for run, _, _ in ended]),))


def tell_ended(session: Session, child: int) -> None:
    """Put how a child has ended, if it has, into its parent's inbox."""
    for status, body in session.run("children.outcome", ENDED_ALREADY, (child,)):
        tell_parents(session, [(child, RunStatus(status), body)])


def leave_children(session: Session, generations: Sequence[int], runs: Sequence[int]) -> None:
    """Have the children of generations that end closed as they were started to be, and forget what the inboxes hold."""
    if generations:
        session.run("children.close_all", CLOSE_ALL, (json.dumps(generations),))
        session.run("inbox.forget", FORGET_INBOX, (json.dumps(runs),))


# ---- what workers ask ------------------------------------------------------------------------------


def started(session: Session, generation: int) -> list[StartedChild]:
    """Return the children that *generation* has started or taken over, in command order."""
    return read_all(session, "children.list", LISTED, (generation,), lambda row: StartedChild(*row))


def asked(session: Session, limit: int) -> list[Asked]:
    """Return up to *limit* requests at children."""
    return [Asked(*row) for row in session.run("to_close.asked", ASKED, (limit,))]


def carried_out(session: Session, done: Sequence[Asked], last: int | None) -> None:
    """Note which children were asked; requests up to *last* have nothing left to ask."""
    session.run("children.closed", CLOSED, (json.dumps([(each.child, each.how) for each in done]),))
    if last is not None:
        session.run("to_close.done", "DELETE FROM to_close WHERE key <= ?", (last,))


def last_request(session: Session) -> int | None:
    """Return the key of the newest request, None: there is none."""
    key: int | None = session.value("to_close.last", "SELECT max(key) FROM to_close")
    return key


# ---- inside ----------------------------------------------------------------------------------------


def _start(session: Session, wanted: Sequence[tuple[Transition, NewChild]], now: int) -> None:
    taken = names_taken(session, [child.run for _, child in wanted])
    fresh: list[tuple[Transition, NewChild]] = []
    refused: list[tuple[Transition, NewChild]] = []
    for t, child in wanted:
        name = (child.run.namespace, child.run.id)
        (refused if name in taken else fresh).append((t, child))
        taken.add(name)
    keys = create(session, [child.run for _, child in fresh], now)
    CHILDREN.write(session, [_child_row(t, child, keys) for t, child in fresh])
    messages: list[Row] = [(t.run, About.STARTED, c.seq, False, b"", c.run.id) for t, c in fresh if c.tell]
    messages += [(t.run, About.CONFLICT, c.seq, True, b"", _who_has(session, t, c.run)) for t, c in refused]
    _tell(session, messages)


def _child_row(t: Transition, child: NewChild, keys: dict[tuple[str, str], int]) -> Row:
    return (keys[child.run.namespace, child.run.id], t.run, t.generation, child.seq, child.on_close)


def _who_has(session: Session, t: Transition, run: NewRun) -> str:
    info: str = session.value("children.taken", TAKEN_INFO, (run.namespace, run.id, t.run, t.generation))
    return info


def _tell(session: Session, messages: Sequence[Row]) -> None:
    if messages:
        MESSAGES.write(session, messages)
        runs = json.dumps(sorted({row[0] for row in messages}))
        session.run("inbox.wake_own", "INSERT INTO wakes (run) SELECT value FROM json_each(?)", (runs,))
