"""Creating runs: every ID that is free, in one statement."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, LiteralString, TypeAlias

from romulus.core.transition import CopyFrom, Created, Existing, NewRun

from .rows import FIRST_GENERATION, GENERATION, RUN, RUN_OF_NAME, array, generation_parts, run_and_generation_of
from .session import Session

Name: TypeAlias = tuple[str, str]  # namespace, run ID

# Keys are given in the order of the call, rows are written in the order of their IDs: two calls with the same IDs cannot deadlock.
START: Final[LiteralString] = """
WITH c AS MATERIALIZED (SELECT romulus.clock() AS now),
t AS MATERIALIZED (SELECT nextval('romulus.run_keys') AS key, n.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[],
    $6::text::bigint[], $7::text::bigint[], $8::text::integer[], $9::text[], $10::text::bigint[], $11::bytea[], $12::bytea[], $13::text[],
    $14::text::bigint[], $15::text::bigint[], $16::text::integer[], $17::text::integer[], $18::text::integer[])
    AS n (namespace, id, workflow, version, status, wake_at, delay, priority, attributes, started_at, input, input_digest, seeds, timeout,
    copy_run, copy_generation, copy_below, depth)),
d AS MATERIALIZED (SELECT t.*, CASE WHEN t.delay IS NOT NULL THEN c.now + t.delay WHEN t.wake_at = 0 THEN c.now ELSE t.wake_at END AS due,
    c.now FROM t, c),
created AS (INSERT INTO romulus.runs (key, namespace, id, workflow, version, status, generation, position, revision, fence, cancel_seq,
    cancel_reason, last_transition, armed, losses, wake_at, lane, queue_at, priority, digest, excluded, hold_kind, hold_reason, attributes,
    created_at, started_at, updated_at, depth)
    SELECT key, namespace, id, workflow, version, status, 1, CASE WHEN copy_run IS NULL THEN 0 ELSE (SELECT count(*) FROM romulus.journal j
    WHERE j.run = copy_run AND j.generation = copy_generation AND j.position < copy_below) END, 0, 0, 0, '', 0, '[]', 0, due,
    CASE WHEN priority = 0 THEN 0 WHEN due <= now THEN 1 ELSE 2 END, due - CASE WHEN due <= now THEN priority::bigint * 10000000 ELSE 0 END,
    priority, '', '', '', '', attributes, now, started_at, now, depth FROM d ORDER BY namespace, id
    ON CONFLICT (namespace, id) DO NOTHING RETURNING key),
begun AS (INSERT INTO romulus.generations (run, number, workflow, version, input, input_digest, seeds, started_at, timeout)
    SELECT t.key, 1, t.workflow, t.version, t.input, t.input_digest, t.seeds, t.started_at, t.timeout FROM created JOIN t USING (key)),
copied AS (INSERT INTO romulus.journal (run, generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence,
    transition)
    SELECT t.key, 1, j.position, j.kind, j.seq, j.name, j.attempt, j.at, j.failed, j.body, j.digest, j.info, j.fence, j.transition
    FROM created JOIN t USING (key) JOIN romulus.journal j
    ON j.run = t.copy_run AND j.generation = t.copy_generation AND j.position < t.copy_below)
SELECT t.key FROM t JOIN created USING (key) ORDER BY t.key
"""
NUMBERS: Final = frozenset({5, 6, 7, 9, 13, 14, 15, 16, 17})  # of the columns
DOUBTED: Final[LiteralString] = (
    "INSERT INTO romulus.doubts (run, since, restored_at) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])"
)
KEYS: Final[LiteralString] = "SELECT key, namespace, id FROM romulus.runs WHERE key = ANY($1::bigint[])"
EXISTING: Final[LiteralString] = (
    f"SELECT {RUN}, {GENERATION} FROM unnest($1::text[], $2::text[]) n (namespace, id) {RUN_OF_NAME} {FIRST_GENERATION}"
)


async def start(session: Session, runs: Sequence[NewRun]) -> list[Created | Existing]:
    """Create every run whose ID is free; see `Store.start`."""
    fresh: dict[Name, NewRun] = {}
    for run in runs:
        fresh.setdefault(_name(run), run)
    keys = await create(session, list(fresh.values()))
    taken = [run for run in runs if fresh[_name(run)] is not run or _name(run) not in keys]
    existing = await _existing(session, taken)
    return [Created(keys[_name(run)]) if fresh[_name(run)] is run and _name(run) in keys else existing[_name(run)] for run in runs]


def ours(runs: Sequence[NewRun], found: Sequence[Created | Existing]) -> list[Created | Existing]:
    """Return the answers to a start that was sent before without an answer: a run with the very seed asked for is the one created then."""
    pairs = zip(runs, found, strict=True)
    return [Created(f.run.key) if isinstance(f, Existing) and f.first.seeds == run.seeds else f for run, f in pairs]


def _name(run: NewRun) -> Name:
    return run.namespace, run.id


async def create(session: Session, runs: Sequence[NewRun]) -> dict[Name, int]:
    """Insert those of *runs* whose names are free and return their keys."""
    columns = _columns([_row(run) for run in runs])
    created = await session.rows("start.runs", START, *(array(column) if n in NUMBERS else column for n, column in enumerate(columns)))
    if len(created) == len(runs):
        keys = {_name(run): key for run, (key,) in zip(runs, created, strict=True)}
    else:
        found = await session.rows("start.keys", KEYS, [key for (key,) in created])
        keys = {(namespace, run_id): key for key, namespace, run_id in found}
    doubted = [(keys[_name(run)], *run.doubt) for run in runs if run.doubt is not None and _name(run) in keys]
    if doubted:
        await session.rows("start.doubted", DOUBTED, *_columns(doubted))
    return keys


def _row(run: NewRun) -> tuple[Any, ...]:
    copy = run.copy or CopyFrom(0, 0)
    source, number = generation_parts(copy.generation_key) if run.copy else (None, None)
    return (
        run.namespace, run.id, run.workflow, run.version, run.status.value, run.wake_at, run.delay, run.priority, run.attributes,
        run.started_at, run.input, run.input_digest, run.seeds, run.timeout, source, number, copy.below, run.depth,
    )  # fmt: skip


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


async def _existing(session: Session, runs: Sequence[NewRun]) -> dict[Name, Existing]:
    if not runs:
        return {}
    found = await session.rows("start.existing", EXISTING, [run.namespace for run in runs], [run.id for run in runs])
    both = [run_and_generation_of(row) for row in found]
    return {(run.namespace, run.id): Existing(run, first) for run, first in both}
