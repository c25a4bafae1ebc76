"""Saves the outcomes of a refused transition: what a step did is recorded although what followed from it may not be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from romulus.core.machine import Change, after
from romulus.core.record import Entry, Kind, Record
from romulus.core.transition import Transition

from .engine import Engine, Outcome
from .takeup import parse_armed

if TYPE_CHECKING:
    from .driver import RunDriver


def finished(driver: RunDriver, refused: Transition | None) -> list[Entry]:
    """Return the step outcomes that a driver about to be dropped has in hand: of its refused transition, and queued behind it."""
    entries = [entry for entry in refused.entries if entry.kind == Kind.STEP] if refused is not None else []
    queued = [delivery for delivery in driver.queue if isinstance(delivery, Outcome)]
    return entries + [_entry(driver, outcome) for outcome in queued]


def outcomes_alone(engine: Engine, entries: Sequence[Entry], record: Record) -> Transition | None:
    """Return the transition that records the first of *entries* alone under the claim of *record*; None: there is none to save.

    It must be the outcome of an attempt that the record lists as armed: the code awaits that, as far as the record goes. What it
    awaits after that outcome only the code can say, so the others count as lost attempts.
    """
    run = record.run
    armed = parse_armed(run.armed)
    listed = {(attempt.seq, attempt.number, attempt.digest) for attempt in armed}
    outcomes = [entry for entry in entries if (entry.seq, entry.attempt, entry.digest.hex()) in listed][:1]
    if not outcomes:
        return None
    settled = [entry.seq for entry in outcomes]
    left = [attempt for attempt in armed if attempt.seq not in settled]
    return Transition(
        engine.next_transition_id(), run.key, run.generation_key, run.id, engine.owner.id, run.fence, run.revision,
        Change.ADVANCE, after(run.status, Change.ADVANCE, run.id), run.position + len(outcomes),
        json.dumps(left, separators=(",", ":")) if left else "", _renumbered(outcomes, run.position),
        progressed=True, digest=run.digest, settled=settled,
    )  # fmt: skip


def _entry(driver: RunDriver, outcome: Outcome) -> Entry:
    command = outcome.work.command
    at = max(driver.instance.now, driver.engine.store.estimated_now())
    return Entry(0, Kind.STEP, command.seq, command.name, outcome.work.number, at, outcome.failed, outcome.body, command.digest)


def _renumbered(entries: Sequence[Entry], position: int) -> list[Entry]:
    return [entry._replace(position=position + offset) for offset, entry in enumerate(entries)]
