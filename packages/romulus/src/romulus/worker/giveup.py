"""Holds a claimed run that cannot even be brought into memory here: its arguments do not decode, or its code is gone."""

from __future__ import annotations

from romulus.core.machine import Change, after
from romulus.core.record import HoldKind, Record
from romulus.core.requests import ends_cancelled
from romulus.core.text import escaped
from romulus.core.transition import Transition

from . import holding
from .engine import Engine


def unopened(engine: Engine, record: Record, kind: HoldKind, reason: str) -> Transition:
    """Return the transition that holds the run; a worker with other code may take it up by itself. One cancelled in a hold ends."""
    run, reason = record.run, escaped(f"{reason}; it goes on by itself when a worker with fitting code starts")
    ends = ends_cancelled(run, kind, unsettled=record.unsettled)
    if not ends:
        reason = holding.of_cancelled(reason, run.cancel_seq, unsettled=record.unsettled)
    digest = engine.registry.digests.get((run.workflow, run.version), "")
    change = Change.END_CANCELLED if ends else Change.HOLD
    return Transition(
        engine.next_transition_id(), run.key, run.generation_key, run.id, engine.owner.id, run.fence, run.revision, change,
        after(run.status, change, run.id), run.position, run.armed, cancel_seq=run.cancel_seq if ends else None, digest=run.digest,
        excluded=None if ends else f"{run.excluded} {digest}".strip(), hold=("" if ends else kind, reason),
        failure=holding.cleanup_failed(engine.registry.vault, run.id, reason) if ends else None,
        child=run.depth > 0, parent=record.parent or record.operates or record.pooled, operates=record.operates, pooled=record.pooled,
    )  # fmt: skip
