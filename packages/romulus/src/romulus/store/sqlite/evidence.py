"""Evidence: late or contradicting reports, appended up to a limit per run."""

from __future__ import annotations

from romulus.store.contract import EVIDENCE_MAX, Evidence

from .rows import gathered, read_all
from .session import Session


def keep(session: Session, run: int, evidence: Evidence) -> None:
    """Append *evidence* unless the run has as much as is kept."""
    session.run(
        "evidence.keep",
        "INSERT INTO evidence (run, at, kind, owner, fence, detail) SELECT ?1, ?2, ?3, ?4, ?5, ?6 "
        "WHERE (SELECT count(*) FROM evidence WHERE run = ?1) < ?7",
        (run, evidence.at, evidence.kind, evidence.owner, evidence.fence, evidence.detail, EVIDENCE_MAX),
    )


def of_run(session: Session, run: int) -> list[Evidence]:
    """Return a run's evidence, oldest first."""
    sql = gathered("at, kind, owner, fence, detail", "FROM (SELECT * FROM evidence WHERE run = ? ORDER BY key)")
    return read_all(session, "evidence.read", sql, (run,), lambda row: Evidence(*row))
