"""Creating runs: every ID that is free, in one commit."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from romulus.core.transition import Created, Existing, NewRun
from romulus.store.queue import place

from .bulk import Bulk
from .connection import Row
from .generations import copy_journal
from .rows import GENERATION, RUN, generation_of, run_of
from .session import Session

Name: TypeAlias = tuple[str, str]  # namespace, run ID

RUNS: Final = Bulk(
    "start.runs",
    "INSERT INTO runs (key, namespace, id, workflow, version, status, generation, generation_key, position, revision, owner, fence, "
    "cancel_seq, cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, "
    "hold_reason, deadline, attributes, created_at, started_at, updated_at, finished_at, depth) SELECT column1, column2, column3, "
    "column4, column5, column6, 1, column7, 0, 0, NULL, 0, 0, '', 0, '[]', 0, column8, column9, column10, column11, '', '', '', '', NULL, "
    "column12, column13, column14, column13, NULL, column15 FROM (",
    15,
    ")",
)
GENERATIONS: Final = Bulk(
    "start.generations",
    "INSERT INTO generations (key, run, number, workflow, version, input, input_digest, seeds, started_at, timeout) ",
    10,
)
DOUBTED: Final = Bulk("start.doubted", "INSERT INTO doubts (run, since, restored_at) ", 3)
TAKEN: Final = (
    "SELECT json_group_array(json_array(r.namespace, r.id)) FROM json_each(?) t "
    "CROSS JOIN runs r ON r.namespace = t.value ->> 0 AND r.id = t.value ->> 1"
)
NEXT: Final = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?), 0) + 1"


def start(session: Session, runs: Sequence[NewRun], now: int) -> list[Created | Existing]:
    """Create every run whose ID is free inside the open transaction; see `Store.start`."""
    taken = names_taken(session, runs)
    fresh: dict[Name, NewRun] = {}
    for run in runs:
        if _name(run) not in taken:
            fresh.setdefault(_name(run), run)
    keys = create(session, list(fresh.values()), now)
    return [Created(keys[_name(run)]) if fresh.get(_name(run)) is run else _existing(session, _name(run)) for run in runs]


def _name(run: NewRun) -> Name:
    return run.namespace, run.id


def names_taken(session: Session, runs: Sequence[NewRun]) -> set[Name]:
    """Return the names among those of *runs* that runs have already."""
    found = session.value("start.taken", TAKEN, (json.dumps([_name(run) for run in runs]),))
    return {(namespace, run_id) for namespace, run_id in json.loads(found)}


def create(session: Session, runs: Sequence[NewRun], now: int) -> dict[Name, int]:
    """Insert *runs*, whose names are free, and return their keys."""
    if not runs:
        return {}
    key: int = session.value("start.key", NEXT, ("runs",))
    generation: int = session.value("start.generation", NEXT, ("generations",))
    RUNS.write(session, [_run_row(run, key + n, generation + n, now) for n, run in enumerate(runs)])
    GENERATIONS.write(session, [_generation_row(run, key + n, generation + n) for n, run in enumerate(runs)])
    for n, run in enumerate(runs):
        if run.copy is not None:
            copied = copy_journal(session, generation + n, run.copy.generation_key, run.copy.below)
            session.run("start.copied", "UPDATE runs SET position = ? WHERE key = ?", (copied, key + n))
    DOUBTED.write(session, [(key + n, *run.doubt) for n, run in enumerate(runs) if run.doubt is not None])
    return {_name(run): key + n for n, run in enumerate(runs)}


def _run_row(run: NewRun, key: int, generation: int, now: int) -> Row:
    wake_at = run.wake_at if run.delay is None else now + run.delay
    queue = place(run.status, wake_at, run.priority, now)
    return (
        key, run.namespace, run.id, run.workflow, run.version, run.status, generation, *queue, run.priority,
        run.attributes, now, run.started_at, run.depth,
    )  # fmt: skip


def _generation_row(run: NewRun, key: int, generation: int) -> Row:
    return (generation, key, 1, run.workflow, run.version, run.input, run.input_digest, run.seeds, run.started_at, run.timeout)


def _existing(session: Session, name: Name) -> Existing:
    sql = (
        f"SELECT json_array({RUN}), json_array({GENERATION}) FROM runs r JOIN generations g ON g.run = r.key AND g.number = 1 "
        "WHERE r.namespace = ? AND r.id = ?"
    )
    ((run, first),) = session.run("start.existing", sql, name)
    return Existing(run_of(json.loads(run)), generation_of(json.loads(first)))
