"""The end of a generation, and the beginning of the next."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from romulus.core.machine import TERMINAL, Change
from romulus.core.transition import NewGeneration, Transition

from .rows import generation_parts
from .session import Session
from .statement import Statement

ENDING: Final[LiteralString] = "id bigint, result bytea, failure bytea, ended_by integer"
BEGINNING: Final[LiteralString] = (
    "id bigint, workflow text, version text, input bytea, input_digest bytea, seeds text, started_at bigint, timeout bigint, "
    "source bigint, source_generation integer, below integer"
)
COPY: Final[LiteralString] = "j.position, j.kind, j.seq, j.name, j.attempt, j.at, j.failed, j.body, j.digest, j.info, j.fence, j.transition"
INTO_JOURNAL: Final[LiteralString] = (
    "INSERT INTO romulus.journal (run, generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition)"
)
INTO_GENERATIONS: Final[LiteralString] = (
    "INSERT INTO romulus.generations (run, number, workflow, version, input, input_digest, seeds, started_at, timeout)"
)


def ends(t: Transition) -> bool:
    """Return whether the generation ends with *t*."""
    return t.change is Change.CONTINUE or t.status in TERMINAL


def end_generations(s: Statement, ending: Sequence[Transition]) -> None:
    """Add the end of each generation. The run row is read as it was before this statement: a successor has another start."""
    if not ending:
        return
    source = s.rows(ENDING, [(t.id, t.result, t.failure, t.ended_by) for t in ending])
    s.part(f"ended AS MATERIALIZED (SELECT d.key, d.generation, x.* FROM {source} x JOIN done d ON d.id = x.id)")
    s.part(
        "sealed AS (UPDATE romulus.generations g SET started_at = coalesce(g.started_at, r.started_at), ended_at = c.now, "
        "result = e.result, failure = e.failure, ended_by = e.ended_by FROM ended e JOIN romulus.runs r ON r.key = e.key CROSS JOIN c "
        "WHERE g.run = e.key AND g.number = e.generation)"
    )
    s.part("forgotten AS (DELETE FROM romulus.attempts a USING ended e WHERE a.run = e.key AND a.generation = e.generation)")


def begin_generations(s: Statement, transitions: Sequence[Transition]) -> None:
    """Add the successor of each generation that continues as new."""
    rows = [(t.id, *_given(t.begins)) for t in transitions if t.begins is not None]
    if not rows:
        return
    s.part(
        f"begun AS MATERIALIZED (SELECT d.key, d.generation + 1 AS number, b.* FROM {s.rows(BEGINNING, rows)} b JOIN done d ON d.id = b.id)"
    )
    s.part(
        f"successors AS ({INTO_GENERATIONS} SELECT key, number, workflow, version, input, input_digest, seeds, started_at, "
        f"timeout FROM begun)"
    )
    s.part(
        f"copied AS ({INTO_JOURNAL} SELECT b.key, b.number, {COPY} FROM begun b JOIN romulus.journal j ON j.run = b.source "
        "AND j.generation = b.source_generation AND j.position < b.below)"
    )


async def begin_generation(session: Session, run: int, number: int, new: NewGeneration) -> None:
    """Give *run* its generation *number* with the journal it copies, inside the open transaction."""
    workflow, version, given, digest, seeds, started_at, timeout, source, generation, below = _given(new)
    await session.rows(
        "generation.begin", f"{INTO_GENERATIONS} VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        run, number, workflow, version, given, digest, seeds, started_at, timeout,
    )  # fmt: skip
    position = 0
    if new.copy is not None:
        copied = await session.rows(
            "generation.copy",
            f"{INTO_JOURNAL} SELECT $1::bigint, $2::integer, {COPY} FROM romulus.journal j WHERE j.run = $3 AND j.generation = $4 "
            "AND j.position < $5 ORDER BY j.position RETURNING position",
            run, number, source, generation, below,
        )  # fmt: skip
        position = len(copied)
    await session.rows(
        "generation.becomes",
        "UPDATE romulus.runs SET workflow = $2, version = $3, generation = $4, position = $5, started_at = $6, digest = '' "
        "WHERE key = $1",
        run, workflow, version, number, position, started_at,
    )  # fmt: skip


def _given(new: NewGeneration) -> tuple[str, str, bytes, bytes, str, int | None, int | None, int | None, int | None, int]:
    source, number = (None, None) if new.copy is None else generation_parts(new.copy.generation_key)
    below = 0 if new.copy is None else new.copy.below
    return (
        new.workflow, new.version, new.input, new.input_digest, new.seeds, new.started_at, new.timeout, source, number, below,
    )  # fmt: skip
