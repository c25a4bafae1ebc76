"""Evidence: late or contradicting reports, appended up to a limit per run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString, TypeAlias

from romulus.store.contract import EVIDENCE_MAX, Evidence

from .session import Session

Late: TypeAlias = tuple[int, str, int, str]  # run, owner, fence, detail

KEEP: Final[LiteralString] = (
    "INSERT INTO romulus.evidence (run, at, kind, owner, fence, detail) SELECT $1::bigint, $2, $3, $4, $5, $6 "
    "WHERE (SELECT count(*) FROM romulus.evidence WHERE run = $1) < $7"
)
KEEP_REFUSED: Final[LiteralString] = (
    "INSERT INTO romulus.evidence (run, at, kind, owner, fence, detail) SELECT x.run, romulus.clock(), 'late_transition', "
    "x.owner, x.fence, "
    "x.detail FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) x (run, owner, fence, detail) "
    "WHERE (SELECT count(*) FROM romulus.evidence e WHERE e.run = x.run) < $5"
)


async def keep(session: Session, run: int, evidence: Evidence) -> None:
    """Append *evidence* unless the run has as much as is kept."""
    given = (run, evidence.at, evidence.kind, evidence.owner, evidence.fence, evidence.detail, EVIDENCE_MAX)
    await session.rows("evidence.keep", KEEP, *given)


async def keep_refused(session: Session, late: Sequence[Late]) -> None:
    """Append one row for each refused transition."""
    runs, owners, fences, details = [list(column) for column in zip(*late, strict=True)]
    await session.rows("evidence.refused", KEEP_REFUSED, runs, owners, fences, details, EVIDENCE_MAX)
