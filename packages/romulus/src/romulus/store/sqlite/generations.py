"""The next generation of a run, and the journal it copies."""

from __future__ import annotations

from typing import Final

from romulus.core.transition import NewGeneration

from .session import Session

BEGUN: Final = (
    "INSERT INTO generations (run, number, workflow, version, input, input_digest, seeds, started_at, timeout) "
    "SELECT key, generation + 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM runs WHERE key = ?1 RETURNING key"
)
BECOMES: Final = (
    "UPDATE runs SET workflow = ?2, version = ?3, generation = generation + 1, generation_key = ?4, position = ?5, "
    "started_at = ?6, digest = '' WHERE key = ?1"
)


def begin_generation(session: Session, run: int, new: NewGeneration) -> None:
    """Give *run* its next generation, with the journal it copies."""
    given = (run, new.workflow, new.version, new.input, new.input_digest, new.seeds, new.started_at, new.timeout)
    key: int = session.value("generation.begin", BEGUN, given)
    position = 0 if new.copy is None else copy_journal(session, key, new.copy.generation_key, new.copy.below)
    session.run("generation.becomes", BECOMES, (run, new.workflow, new.version, key, position, new.started_at))


def copy_journal(session: Session, to: int, source: int, below: int) -> int:
    """Copy the entries of *source* with a position under *below* and return how many there are."""
    return session.count(
        "journal.copy",
        "INSERT INTO journal (generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition) "
        "SELECT ?1, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition "
        "FROM journal WHERE generation = ?2 AND position < ?3 ORDER BY position",
        (to, source, below),
    )
