"""Group commit: one guarded statement for a batch, put together from the parts that this batch needs.

The guards are conditions on the run row alone, so that PostgreSQL checks them again on the row's newest version after a wait for its
lock. Everything else is joined to `done`, the transitions whose guards held. Locks are taken in one order: runs by key, then operations by
key, then waits by (run, seq); of others there are only inserts.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString

from romulus.core.machine import ENDS_CLAIM, TERMINAL, Change
from romulus.core.transition import Transition

from .children import UNTAKEN, forget_messages, leave_family, take_messages
from .closing import MISHELD, close_waits, write_closes
from .ending import begin_generations, end_generations, ends
from .operating import UNHELD, check_operations, write_operations
from .rows import Row, generation_parts
from .statement import Statement

GUARDED: Final[LiteralString] = (
    "id bigint, run bigint, owner text, fence bigint, revision bigint, cancel_seq integer, generation integer, not_before bigint, "
    "status text, position integer, armed text, digest text, progressed boolean"
)
LEAVING: Final[LiteralString] = ", leaves boolean, excluded text, hold_kind text, hold_reason text, finished boolean, wake bigint"
BEGINNING: Final[LiteralString] = ", begins boolean, new_workflow text, new_version text, new_started_at bigint, new_position integer"
# Only the key is there to join by: by the owner, the planner once compared each run of a worker with each of its batch.
GUARDS: Final[LiteralString] = (
    "r.key = t.run AND (r.owner = t.owner) IS TRUE AND (r.fence = t.fence) IS TRUE AND (r.revision = t.revision) IS TRUE "
    "AND (r.generation = t.generation) IS TRUE AND (t.cancel_seq IS NULL OR r.cancel_seq = t.cancel_seq) "
    "AND (t.not_before IS NULL OR t.not_before <= c.now)"
)
WRITTEN: Final[LiteralString] = (
    "status = t.status, revision = r.revision + 1, armed = t.armed, last_transition = t.id, updated_at = c.now, "
    "losses = CASE WHEN t.progressed THEN 0 ELSE r.losses END"
)
PLAIN: Final[LiteralString] = "position = t.position, digest = CASE t.digest WHEN '' THEN r.digest ELSE t.digest END"
DUE: Final[LiteralString] = "CASE WHEN t.wake = 0 THEN c.now ELSE t.wake END"
LEFT: Final[LiteralString] = (
    "owner = CASE WHEN t.leaves THEN NULL ELSE r.owner END, excluded = coalesce(t.excluded, r.excluded), hold_kind = t.hold_kind, "
    "hold_reason = t.hold_reason, finished_at = CASE WHEN t.finished THEN c.now END, "
    f"wake_at = {DUE}, lane = CASE WHEN r.priority = 0 OR t.wake IS NULL THEN 0 WHEN t.wake <= c.now THEN 1 ELSE 2 END, "
    f"queue_at = {DUE} - CASE WHEN t.wake <= c.now THEN r.priority::bigint * 10000000 ELSE 0 END, "
    "queued_by = CASE WHEN t.wake IS NULL THEN r.queued_by ELSE romulus.xid() END"
)
BEGUN: Final[LiteralString] = (
    "workflow = coalesce(t.new_workflow, r.workflow), version = coalesce(t.new_version, r.version), "
    "generation = CASE WHEN t.begins THEN r.generation + 1 ELSE r.generation END, "
    "position = CASE WHEN t.begins THEN t.new_position ELSE t.position END, "
    "started_at = CASE WHEN t.begins THEN t.new_started_at ELSE r.started_at END, "
    "cancel_seq = CASE WHEN t.begins THEN 0 ELSE r.cancel_seq END, "
    "cancel_reason = CASE WHEN t.begins THEN '' ELSE r.cancel_reason END, "
    "digest = CASE WHEN t.begins THEN '' WHEN t.digest = '' THEN r.digest ELSE t.digest END"
)
RETURNED: Final[LiteralString] = "RETURNING t.id, r.key, t.generation, t.fence, r.namespace"
ANSWER: Final[LiteralString] = "SELECT (SELECT now FROM c), ARRAY(SELECT id FROM done)"
ENTRIES: Final[LiteralString] = (
    "id bigint, position integer, kind text, seq integer, name text, attempt integer, at bigint, failed boolean, body bytea, digest bytea, "
    "info text"
)
ATTEMPTS: Final[LiteralString] = (
    "id bigint, seq integer, digest text, number integer, failures integer, losses integer, due bigint, error bytea, heartbeat bytea, "
    "name text"
)
OPENED: Final[LiteralString] = (
    "id bigint, n integer, seq integer, name text, correlation_id text, deadline bigint, shared boolean, include_late boolean"
)


def statement(transitions: Sequence[Transition]) -> tuple[LiteralString, list[Any]]:
    """Return the statement that writes *transitions* (of different runs), and what it is given.

    It answers [store now, IDs of those written].
    """
    s = Statement(alone=len(transitions) == 1)
    transitions = sorted(transitions, key=lambda t: t.run)
    ended = [t for t in transitions if ends(t)]
    took = take_messages(s, transitions)
    closes, operating = close_waits(s, transitions), check_operations(s, transitions)
    _update_runs(s, transitions, _unfit(s, (MISHELD, closes), (UNTAKEN, took), (UNHELD, operating)))
    _journal(s, transitions)
    _attempts(s, transitions)
    _open_waits(s, transitions)
    end_generations(s, ended)
    write_closes(s, transitions)
    write_operations(s, transitions)
    if took:
        forget_messages(s)
    leave_family(s, ended)
    begin_generations(s, transitions)
    return s.sql(ANSWER), s.args


def _unfit(s: Statement, *checks: tuple[LiteralString, bool]) -> LiteralString:
    """Add which transitions speak of an event, a message or an operation that is not there; return the guard that leaves them out.

    Only the run's own transitions take the first two away, so what the statement's snapshot shows still holds when the run row is locked.
    """
    asked: list[LiteralString] = [check for check, is_asked in checks if is_asked]
    if not asked:
        return ""
    union: LiteralString = " UNION ALL ".join(asked)
    s.part(f"unfit AS MATERIALIZED ({union})")
    return "AND t.id NOT IN (SELECT id FROM unfit)"


def _update_runs(s: Statement, transitions: Sequence[Transition], unfit: LiteralString) -> None:
    """Add the guarded update: of those that keep their claim, and of those that leave, hold or end."""
    staying = [t for t in transitions if _stays(t)]
    leaving = [t for t in transitions if not _stays(t)]
    names: list[LiteralString] = []
    if staying:
        columns, rows, clause = _attributed(staying, [_guarded(t) for t in staying])
        s.part(_update("advanced", s.rows(GUARDED + columns, rows), PLAIN + clause, unfit))
        names.append("SELECT * FROM advanced")
    if leaving:
        s.part(_leave(s, leaving, unfit))
        names.append("SELECT * FROM departed")
    union: LiteralString = " UNION ALL ".join(names)
    s.part(f"done AS MATERIALIZED ({union})")


def _attributed(transitions: Sequence[Transition], rows: list[Row]) -> tuple[LiteralString, list[Row], LiteralString]:
    """Return the further columns, the rows and the clause for new attributes, where a batch has any."""
    if all(t.attributes is None for t in transitions):
        return "", rows, ""
    with_attributes: list[Row] = [(*row, t.attributes) for t, row in zip(transitions, rows, strict=True)]
    return ", attributes text", with_attributes, ", attributes = coalesce(t.attributes, r.attributes)"


def _leave(s: Statement, leaving: Sequence[Transition], unfit: LiteralString) -> LiteralString:
    begins = any(t.begins for t in leaving)
    given: list[Row] = [(*_guarded(t), *_left(t), *(_begun(t) if begins else ())) for t in leaving]
    columns, rows, clause = _attributed(leaving, given)
    kinds: LiteralString = GUARDED + LEAVING + (BEGINNING if begins else "") + columns
    more: LiteralString = f"{LEFT}, {BEGUN if begins else PLAIN}{clause}"
    return _update("departed", s.rows(kinds, rows), more, unfit)


def _update(name: LiteralString, source: LiteralString, more: LiteralString, unfit: LiteralString) -> LiteralString:
    return f"{name} AS (UPDATE romulus.runs r SET {WRITTEN}, {more} FROM {source} t, c WHERE {GUARDS} {unfit} {RETURNED})"


def _stays(t: Transition) -> bool:
    return t.change is Change.ADVANCE and t.excluded is None


def _guarded(t: Transition) -> Row:
    run, number = generation_parts(t.generation)
    return (
        t.id, t.run if run == t.run else None, t.owner, t.fence, t.revision, t.cancel_seq, number, t.not_before, t.status.value, t.position,
        t.armed, t.digest, t.progressed,
    )  # fmt: skip


def _left(t: Transition) -> Row:
    kind, reason = t.hold or ("", "")
    leaves = t.change in ENDS_CLAIM
    return (leaves, t.excluded, str(kind), reason, t.status in TERMINAL, t.wake_at if leaves else None)


def _begun(t: Transition) -> Row:
    new = t.begins
    if new is None:
        return (False, None, None, None, 0)
    return (True, new.workflow, new.version, new.started_at, 0 if new.copy is None else new.copy.below)


def _journal(s: Statement, transitions: Sequence[Transition]) -> None:
    entries = [(t.id, *entry[:10]) for t in transitions for entry in t.entries]
    if entries:
        s.part(
            "written AS (INSERT INTO romulus.journal (run, generation, position, kind, seq, name, attempt, at, failed, body, digest, info, "
            "fence, transition) SELECT d.key, d.generation, e.position, e.kind, e.seq, e.name, e.attempt, e.at, e.failed, e.body, "
            "e.digest, "
            f"e.info, d.fence, d.id FROM {s.rows(ENTRIES, entries)} e JOIN done d ON d.id = e.id)"
        )


def _attempts(s: Statement, transitions: Sequence[Transition]) -> None:
    """Replace and delete attempt rows; a generation that ends forgets them all."""
    going = [t for t in transitions if not ends(t)]
    settled = [(t.id, seq) for t in going for seq in set(t.settled) - {a.seq for a in t.attempts}]
    if settled:
        s.part(
            f"settled AS (DELETE FROM romulus.attempts a USING {s.rows('id bigint, seq integer', settled)} x JOIN done d ON d.id = x.id "
            "WHERE a.run = d.key AND a.generation = d.generation AND a.seq = x.seq)"
        )
    tried = [(t.id, a) for t in going for a in t.attempts]
    rows = [(i, a.seq, a.digest, a.number, a.failures, a.losses, a.due, a.error, a.heartbeat, a.name) for i, a in tried]
    if rows:
        s.part(
            "tried AS (INSERT INTO romulus.attempts (run, generation, seq, digest, number, failures, losses, due, error, heartbeat, name) "
            "SELECT d.key, d.generation, a.seq, a.digest, a.number, a.failures, a.losses, a.due, a.error, a.heartbeat, a.name "
            f"FROM {s.rows(ATTEMPTS, rows)} a JOIN done d ON d.id = a.id ON CONFLICT (run, generation, seq) DO UPDATE SET "
            "digest = excluded.digest, number = excluded.number, failures = excluded.failures, losses = excluded.losses, "
            "due = excluded.due, error = excluded.error, heartbeat = excluded.heartbeat, name = excluded.name)"
        )


def _open_waits(s: Statement, transitions: Sequence[Transition]) -> None:
    opened = [(t.id, w) for t in transitions if not ends(t) for w in t.opens]
    rows = [(i, n, w.seq, w.name, w.correlation_id, w.deadline, w.shared, w.include_late) for n, (i, w) in enumerate(opened)]
    if rows:
        s.part(
            "opened AS (INSERT INTO romulus.waits (run, seq, namespace, name, correlation_id, deadline, shared, include_late, opened_at) "
            "SELECT d.key, o.seq, d.namespace, o.name, o.correlation_id, o.deadline, o.shared, o.include_late, c.now "
            f"FROM {s.rows(OPENED, rows)} o JOIN done d ON d.id = o.id CROSS JOIN c ORDER BY o.n RETURNING namespace, name, correlation_id)"
        )
        s.part(
            "to_be_matched AS (INSERT INTO romulus.to_match (namespace, name, correlation_id) "
            "SELECT namespace, name, correlation_id FROM opened)"
        )
