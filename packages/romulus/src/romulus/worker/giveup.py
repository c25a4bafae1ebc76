"""Holds a claimed run that cannot even be brought into memory here: its arguments do not decode, or its code is gone."""

from __future__ import annotations

from romulus.core.machine import Change, after
from romulus.core.record import HoldKind, Record
from romulus.core.text import escaped
from romulus.core.transition import Transition

from .engine import Engine


def unopened(engine: Engine, record: Record, kind: HoldKind, reason: str) -> Transition:
    """Return the transition that holds the run; a worker with other code may take it up by itself."""
    run = record.run
    digest = engine.registry.digests.get((run.workflow, run.version), "")
    return Transition(
        engine.next_transition_id(), run.key, run.generation_key, run.id, engine.owner.id, run.fence, run.revision, Change.HOLD,
        after(run.status, Change.HOLD, run.id), run.position, run.armed, digest=run.digest,
        excluded=f"{run.excluded} {digest}".strip(),
        hold=(kind, escaped(f"{reason}; it goes on by itself when a worker with fitting code starts")),
    )  # fmt: skip
