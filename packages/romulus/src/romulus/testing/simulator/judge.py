"""The last word on a seed: every run came to what its program must come to, and the record agrees with what really happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import Kind

from .model import Model, fits
from .people import Started
from .snapshot import EntryRow, RunRow, Snapshot
from .stage import Stage
from .steps import ONCE


class Judge:
    """Looks at a world whose scenario is over."""

    def __init__(self, stage: Stage) -> None:
        world = stage.world
        assert world.checks is not None
        assert world.reader is not None
        self._world, self._people, self._checks, self._reader = world, stage.people, world.checks, world.reader
        self._last: Snapshot = world.checks.last

    def judge(self) -> None:
        """Note everything that does not hold."""
        self._checks.unchanged()
        for complaint in (*self._runs(), *self._steps(), *self._events(), *self._left_over()):
            self._world.fail(complaint)

    # ---- runs ----------------------------------------------------------------------------------

    def _runs(self) -> Iterator[str]:
        rows = {row.id: row for row in self._last.runs.values()}
        for run in self._people.runs.values():
            row = rows.get(run.id)
            if row is None:
                yield f"{run.id}: its start was acknowledged and it is not there"
            elif row.status not in TERMINAL:
                yield f"{run.id}: still {row.status} long after all faults ended {row.hold_reason}"
            else:
                yield from self._ended(run, row)

    def _ended(self, run: Started, row: RunRow) -> Iterator[str]:
        model = Model(lossy=self._checks.losses_max.get(row.key, 0) > 3, stalled=self._world.stalled)
        match row.status:
            case RunStatus.SUCCEEDED:
                result = self._result(row)
                if model.fails(run.text) or not fits(model.expect(run.text), result):
                    yield f"{run.id}: came to {result!r}, its program is {run.text!r}"
            case RunStatus.FAILED:
                late = run.limited and b"RunTimeout" in self._failure(row)
                if not model.fails(run.text) and not late:
                    yield f"{run.id}: failed: {self._failure(row)[:600]!r}"
            case RunStatus.CANCELLED:
                if not run.cancelled:
                    yield f"{run.id}: cancelled and nobody asked for it"
            case _:
                if not run.terminated:
                    yield f"{run.id}: terminated and nobody asked for it"

    def _result(self, row: RunRow) -> Any:
        ((stored,),) = self._reader.rows("SELECT result FROM generations WHERE key = ?", (row.generation_key,))
        return json.loads(json.loads(stored))

    def _failure(self, row: RunRow) -> bytes:
        ((stored,),) = self._reader.rows("SELECT failure FROM generations WHERE key = ?", (row.generation_key,))
        return stored or b""

    # ---- steps ---------------------------------------------------------------------------------

    def _steps(self) -> Iterator[str]:
        effects = {(e.run_id, e.generation, e.seq, e.number): e for e in self._world.ledger.effects}
        for run, number, entry in self._own_entries(Kind.STEP):
            effect = effects.get((run.id, number, entry.seq, entry.attempt))
            if effect is None:
                yield f"{run.id}: the outcome of command {entry.seq} attempt {entry.attempt} is recorded and no body ever began"
            elif not entry.failed and (effect.end != "returned" or json.loads(entry.body) != effect.label):
                yield f"{run.id}: recorded {entry.body!r}, the body of {effect.label!r} {effect.end}"
        yield from self._at_most_once()
        yield from self._bookings()

    def _at_most_once(self) -> Iterator[str]:
        begun = Counter((e.run_id, e.generation, e.seq) for e in self._world.ledger.effects if e.step in ONCE)
        for (run_id, _, seq), count in begun.items():
            run = self._people.runs[run_id]
            if count > 1 + run.releases + (1 if run.cancelled else 0):
                yield f"{run_id}: command {seq} allows one attempt, {count} bodies began and a person allowed {run.releases} more"

    def _bookings(self) -> Iterator[str]:
        booked = Counter(self._reader.rows("SELECT run, generation, seq FROM sim_bookings"))
        steps = self._own_entries(Kind.STEP)
        outcomes = Counter((run.id, number, e.seq) for run, number, e in steps if e.name == "booked" and not e.failed)
        for key in booked.keys() | outcomes.keys():
            if booked[key] != outcomes[key]:
                yield f"{key}: {booked[key]} rows of the transactional step, {outcomes[key]} outcomes"

    def _own_entries(self, kind: str) -> Iterator[tuple[RunRow, int, EntryRow]]:
        """Yield entries of a kind that were not copied from another generation, with run and generation number."""
        seen: set[tuple[Any, ...]] = set()
        for generation in sorted(self._reader.journal):
            key, number = self._last.generations[generation]
            for entry in self._reader.journal[generation]:
                if entry.kind == kind and entry[2:] not in seen:
                    seen.add(entry[2:])
                    yield self._last.runs[key], number, entry

    # ---- events --------------------------------------------------------------------------------

    def _events(self) -> Iterator[str]:
        stored = {event.id: event for event in self._last.events.values()}
        for event_id in self._people.receipts:
            if event_id not in stored:
                yield f"event {event_id!r} has a receipt and is not there"
        consumed = Counter(json.loads(e.info)[0] for _, _, e in self._own_entries(Kind.WAIT) if not e.failed)
        for event_id, count in consumed.items():
            if count > 1:
                yield f"event {event_id!r} was consumed {count} times"
            if event_id not in stored or stored[event_id].state != "consumed":
                yield f"event {event_id!r} stands in a journal and is not consumed"
        for event in stored.values():
            if event.state == "consumed" and not consumed[event.id]:
                yield f"event {event.id!r} is consumed and stands in no journal"
            if event.state == "matched":
                yield f"event {event.id!r} is still matched although every run has ended"

    # ---- the rest --------------------------------------------------------------------------------

    def _left_over(self) -> Iterator[str]:
        for table in ("waits", "attempts", "attempt_names", "inbox", "pool_attempts"):
            ((count,),) = self._reader.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 - a literal
            if count:
                yield f"{count} rows of {table} are left although every run has ended"
