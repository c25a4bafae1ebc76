"""Saves what attempts came to in a refused transition: what a step did is recorded although what followed from it may not be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from romulus.core.machine import Change, after
from romulus.core.record import AttemptRow, Entry, Kind, Record
from romulus.core.transition import Transition

from .draft import still_cancelled
from .engine import Engine
from .takeup import parse_armed
from .undelivered import Known, alone, in_hand

if TYPE_CHECKING:
    from .driver import RunDriver


def finished(driver: RunDriver, refused: Transition | None) -> list[Known]:
    """Return how attempts ended that a driver about to be dropped has in hand: of its refused transition, and queued behind it."""
    queued = in_hand(driver)
    if refused is None:
        return queued
    return [*(entry for entry in refused.entries if entry.kind == Kind.STEP), *refused.attempts, *queued]


def outcomes_alone(engine: Engine, known: Sequence[Known], record: Record, *, leaves: bool = False) -> Transition | None:
    """Return the transition that records *known* alone under the claim of *record*; None: there is nothing to save.

    *leaves*: the run is given back with it, also with nothing to save.

    Each must be the end of an attempt that the record lists as armed: the code awaits that, as far as the record goes. What it
    awaits after one of these outcomes only the code can say: a replay leaves out what it has given up by then.
    """
    run = record.run
    armed = parse_armed(run.armed)
    listed = {(attempt.seq, attempt.number, attempt.digest): attempt.seq for attempt in armed}
    saved: dict[int, Known] = {}
    for each in known:
        if _attempt(each) in listed:
            saved.setdefault(each.seq, each)
    if not saved and not leaves:
        return None
    change = Change.FREE if leaves else Change.ADVANCE
    entries = alone((each for each in saved.values() if isinstance(each, Entry)), run.position)
    left = [attempt for attempt in armed if attempt.seq not in saved]
    return Transition(
        engine.next_transition_id(), run.key, run.generation_key, run.id, engine.owner.id, run.fence, run.revision,
        change, after(run.status, change, run.id), run.position + len(entries),
        json.dumps(left, separators=(",", ":")) if left else "", entries,
        progressed=bool(entries), wake_at=0 if leaves else None, digest=run.digest, hold=still_cancelled(run, change),
        attempts=[each for each in saved.values() if isinstance(each, AttemptRow)],
        settled=[entry.seq for entry in entries], parent=record.parent or record.operates or record.pooled,
    )  # fmt: skip


def _attempt(known: Known) -> tuple[int, int, str]:
    if isinstance(known, Entry):
        return known.seq, known.attempt, known.digest.hex()
    return known.seq, known.number, known.digest
