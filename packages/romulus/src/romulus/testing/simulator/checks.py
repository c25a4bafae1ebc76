"""The guarantees, checked after every commit: each compares what was with what is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from romulus.core.machine import TABLE, TERMINAL, Change, RunStatus
from romulus.core.pools import PoolState
from romulus.core.record import Armed, HoldKind, Kind

from .ledger import Effect, Ledger
from .snapshot import EntryRow, PoolRow, Reader, RunRow, Snapshot, WaitRow

MoveOn = Callable[[str], None]
SETTLED_ONCE = frozenset({Kind.STEP, Kind.TIMER, Kind.WAIT, Kind.CHILD, Kind.STARTED})  # a command has one outcome
CLAIMED, FREE = RunStatus.RUNNING, RunStatus.PENDING
STEPS: frozenset[tuple[str, str]] = frozenset(
    (before, after) for change, moves in TABLE.items() for before, after in moves.items() if change is not Change.RETRY
)


class Checks:
    """Looks at the database after each commit and tells what is broken."""

    def __init__(self, reader: Reader, ledger: Ledger, now: Callable[[], int], broken: MoveOn, trace: MoveOn) -> None:
        self._reader, self._ledger, self._now, self._broken, self._trace = reader, ledger, now, broken, trace
        self.last = Snapshot()
        self.armed: dict[tuple[str, int, int, int], int] = {}  # (run ID, generation, seq, number) to the fence it was armed under
        self.numbers: dict[tuple[int, int], int] = {}  # (generation key, seq) to the last number armed
        self.losses_max: dict[int, int] = {}  # by run key: the most losses in a row
        self.cancelled: set[tuple[int, int]] = set()  # (run key, generation) with an accepted cancel
        self._clock = 0  # µs that the wall clock was ahead of virtual time at most
        self.begun: set[tuple[str, int, int, int]] = set()

    def after_commit(self, workers: set[str], process: str = "") -> None:
        """Compare with the snapshot before. *workers*: the IDs of the process that committed."""
        if not self._reader.changed():
            return
        self.look_at_clock()
        before, after = self.last, self._reader.read()
        self.last = after
        for run in after.runs.values():
            known = before.runs.get(run.key)
            if known is None:
                self._new_run(run, after)
            elif known != run:
                self._run(known, run, workers, before)
                self._hung(known, run, process)
            elif any(entry.generation == run.generation_key for entry in after.entries):
                self._broken(f"{run.id}: its journal grew and its row did not")
        self._pools(before, after)
        self._journal(before, after)
        self._events(before, after)
        self._workers(before, after)

    def look_at_clock(self) -> None:
        """Take note of the wall clock: the store's follows it forward, and not back."""
        self._clock = max(self._clock, self._now() - self._ledger.now())

    @property
    def latest(self) -> int:
        """Return the latest time that the store's clock may show now."""
        return self._clock + self._ledger.now()

    def body_begins(self, effect: Effect) -> None:
        """Check that a body is one of a recorded attempt, and the only one."""
        key = (effect.run_id, effect.generation, effect.seq, effect.number)
        if self.armed.get(key) != effect.fence:
            self._broken(f"{effect.run_id}: attempt {effect.number} of {effect.label!r} begins and was not recorded before")
        if key in self.begun:
            self._broken(f"{effect.run_id}: attempt {effect.number} of {effect.label!r} begins a second time")
        self.begun.add(key)

    # ---- runs ----------------------------------------------------------------------------------

    def _new_run(self, run: RunRow, after: Snapshot) -> None:
        self._trace(f"{run.id}: created {run.status}")
        if run.status not in ("scheduled", "pending") or run.owner is not None:
            self._broken(f"{run.id}: created {run.status}")
        self._shape(run)

    def _run(self, before: RunRow, after: RunRow, workers: set[str], then: Snapshot) -> None:
        self._trace(_difference(before, after))
        for complaint in (*self._moves(before, after), *self._claims(before, after, then), *self._writes(before, after, workers)):
            self._broken(f"{after.id}: {complaint}")
        self._shape(after)
        self._arms(before, after)
        self.losses_max[after.key] = max(self.losses_max.get(after.key, 0), after.losses)
        if after.cancel_seq > before.cancel_seq:
            self.cancelled.add((after.key, after.generation))

    def _moves(self, before: RunRow, after: RunRow) -> Iterator[str]:
        again = after.generation > before.generation
        if before.status in TERMINAL and not (again and after.status == FREE):
            yield f"was {before.status} and changed to {after.status}"
        elif before.status != after.status and (before.status, after.status) not in STEPS and not again:
            yield f"moved from {before.status} to {after.status}"
        if after.generation < before.generation or after.generation > before.generation + 1:
            yield f"moved from generation {before.generation} to {after.generation}"
        if not again and after.cancel_seq < before.cancel_seq:
            yield "a cancel request was taken back"
        if not again and after.position < before.position:
            yield "its position shrank"
        if after.status == RunStatus.SUCCEEDED and before.cancel_seq:
            yield "succeeded although a cancel had been accepted"

    def _claims(self, before: RunRow, after: RunRow, then: Snapshot) -> Iterator[str]:
        if after.fence < before.fence:
            yield "its fence shrank"
        if after.owner != before.owner and after.owner is not None:
            yield from self._claimed(before, after, then)
        if before.owner is not None and after.owner is None and after.status == FREE and after.last_transition == before.last_transition:
            if after.fence <= before.fence:
                yield "was taken from its worker without a new fence"
            if then.workers.get(before.owner, 1) == 0 and self.last.workers.get(before.owner, 1) == 0:
                yield f"was taken from {before.owner}, which is not marked dead"
            if after.losses != before.losses + 1:
                yield "was taken from its worker and the loss is not counted"
        grew = after.position != before.position and after.generation == before.generation
        if before.owner is None and grew:
            yield "was written to while nobody owned it"

    def _claimed(self, before: RunRow, after: RunRow, then: Snapshot) -> Iterator[str]:
        if after.fence <= before.fence:
            yield "was claimed without a new fence"
        if before.owner is not None:
            yield f"was claimed while {before.owner} owned it"
        due = before.wake_at
        if (due is None or due > self.latest) and after.key not in then.wakes and not self._dealt(after.key, then):
            yield "was claimed before it was due"

    def _dealt(self, run: int, then: Snapshot) -> bool:
        """Return whether a wait of the run has got an event in this commit."""
        return any(
            wait.run == run and wait.event is not None and wait.key in then.waits and then.waits[wait.key].event is None
            for wait in self.last.waits.values()
        )

    def _writes(self, before: RunRow, after: RunRow, workers: set[str]) -> Iterator[str]:
        grew = after.position != before.position and after.generation == before.generation
        guarded = grew or after.armed != before.armed or after.last_transition != before.last_transition
        if after.generation == before.generation and guarded:
            if after.revision != before.revision + 1:
                yield f"a guarded write moved its revision from {before.revision} to {after.revision}"
            if before.owner not in workers:
                yield f"a process wrote to it that is not its owner {before.owner}"
            if after.fence != before.fence:
                yield "a guarded write changed its fence"
        if after.revision < before.revision:
            yield "its revision shrank"

    def _hung(self, before: RunRow, after: RunRow, process: str) -> None:
        """Check that the outcome which the code hung on is saved with the hold."""
        label = self._ledger.last_hang.get((after.id, after.generation, process))
        if after.hold_kind != HoldKind.HUNG or before.hold_kind or label is None:
            return
        where = (after.id, after.generation, label, "returned")
        commands = {e.seq for e in self._ledger.effects if (e.run_id, e.generation, e.label, e.end) == where}
        saved = {e.seq for e in self._reader.journal.get(after.generation_key, ()) if e.kind == Kind.STEP}
        if commands and not commands & saved:
            self._broken(f"{after.id}: held because its code hung on the outcome of {label!r}, and that outcome is not saved")

    def _shape(self, run: RunRow) -> None:
        if (run.owner is not None) != (run.status == CLAIMED):
            self._broken(f"{run.id}: {run.status} and owned by {run.owner}")
        if (run.hold_kind != "") != (run.status == RunStatus.HELD):
            self._broken(f"{run.id}: {run.status} with hold {run.hold_kind!r}")
        if run.status in ("scheduled", "pending") and run.wake_at is None:
            self._broken(f"{run.id}: {run.status} and never due")
        if len(self._reader.journal.get(run.generation_key, ())) != run.position:
            self._broken(f"{run.id}: position {run.position} with {len(self._reader.journal.get(run.generation_key, ()))} entries")

    def _arms(self, before: RunRow, after: RunRow) -> None:
        known = before.attempts if after.generation_key == before.generation_key else []
        settled = {e.seq for e in self._reader.journal.get(after.generation_key, ()) if e.kind == Kind.STEP}
        for armed in after.attempts:
            if armed in known:
                continue
            where = (after.generation_key, armed.seq)
            if armed.seq in settled:
                self._broken(f"{after.id}: attempt {armed.number} of command {armed.seq} was granted after its outcome")
            if not self._is_next(after, armed):
                self._broken(f"{after.id}: attempt {armed.number} of command {armed.seq} follows {self.numbers.get(where, 0)}")
            self.numbers[where] = armed.number
            self.armed[after.id, after.generation, armed.seq, armed.number] = after.fence

    def _is_next(self, run: RunRow, armed: Armed) -> bool:
        """Return whether the attempt has the next number; one that was un-armed before it began is granted again."""
        last = self.numbers.get((run.generation_key, armed.seq), 0)
        return armed.number == last + 1 or (armed.number == last and (run.id, run.generation, armed.seq, last) not in self.begun)

    def _pools(self, before: Snapshot, after: Snapshot) -> None:
        for attempt in after.pools.values():
            known = before.pools.get(attempt.key)
            if known == attempt:
                continue
            run, number = after.generations[attempt.generation]
            what = f"{after.runs[run].id}: attempt {attempt.number} of command {attempt.seq} in a pool"
            if known is None and any(
                e.seq == attempt.seq and e.kind == Kind.STEP for e in self._reader.journal.get(attempt.generation, ())
            ):
                self._broken(f"{what} is queued after its outcome")
            if known is not None and known.fence > attempt.fence:
                self._broken(f"{what}: its fence shrank")
            if attempt.owner is not None and (known is None or known.owner != attempt.owner):
                self._taken(what, known, attempt)
                self.armed[after.runs[run].id, number, attempt.seq, attempt.number] = attempt.fence

    def _taken(self, what: str, known: PoolRow | None, attempt: PoolRow) -> None:
        if known is None or known.state != PoolState.QUEUED or attempt.fence <= known.fence:
            self._broken(f"{what} is claimed and was {known}")

    # ---- the journal -----------------------------------------------------------------------------

    def _journal(self, before: Snapshot, after: Snapshot) -> None:
        for entry in after.entries:
            run, number = after.generations[entry.generation]
            known, row = before.runs.get(run), after.runs[run]
            if known is not None and known.generation_key == entry.generation:
                self._entry(entry, number, known, row)
            elif entry.generation not in before.generations:
                self._copied(entry, row)
            else:
                self._broken(f"{row.id}: an entry was added to generation {number}, which is not the current one")

    def _entry(self, entry: EntryRow, number: int, known: RunRow, row: RunRow) -> None:
        entries = self._reader.journal[entry.generation]
        place = entries.index(entry)
        what = f"{row.id}: entry {entry.position} ({entry.kind} {entry.name} seq {entry.seq})"
        self._trace(f"{what} at {entry.at}{' failed' if entry.failed else ''} {entry.body[:60]!r}")
        if entry.position != place:
            self._broken(f"{what} stands at place {place}")
        if entry.fence != known.fence or known.owner is None:
            self._broken(f"{what} was written under fence {entry.fence}, the claim was {known.fence} of {known.owner}")
        if place and entry.at < entries[place - 1].at:
            self._broken(f"{what} is earlier than the entry before it")
        if entry.at > max(self.latest, entries[place - 1].at if place else 0):
            self._broken(f"{what} is from the future")
        settled = [e for e in entries[:place] if e.seq == entry.seq and e.kind == entry.kind and entry.kind in SETTLED_ONCE]
        if settled:
            self._broken(f"{what} settles what entry {settled[0].position} has settled")
        if entry.kind == Kind.STEP and (row.id, number, entry.seq, entry.attempt) not in self.armed:
            self._broken(f"{what} is the outcome of an attempt that was never armed")

    def _copied(self, entry: EntryRow, row: RunRow) -> None:
        same = [e for entries in self._reader.journal.values() for e in entries if e.generation != entry.generation and e[2:] == entry[2:]]
        if not same:
            self._broken(f"{row.id}: entry {entry.position} of a new generation is no copy")

    def unchanged(self) -> None:
        """Check that every entry is still as it was first seen."""
        now = {entry.rowid: entry for entry in self._reader.whole_journal()}
        seen = {entry.rowid: entry for entries in self._reader.journal.values() for entry in entries}
        for rowid, entry in seen.items():
            if now.get(rowid) != entry:
                self._broken(f"entry {entry.position} of generation {entry.generation} was changed or deleted")

    # ---- events and workers ------------------------------------------------------------------------

    def _events(self, before: Snapshot, after: Snapshot) -> None:
        for arrival in before.events.keys() - after.events.keys():
            self._broken(f"event {before.events[arrival].id} was lost")
        holders: dict[int, list[WaitRow]] = {}
        for wait in after.waits.values():
            if wait.event is not None:
                holders.setdefault(wait.event, []).append(wait)
            if wait.key in before.waits and before.waits[wait.key].event not in (None, wait.event) and wait.event is not None:
                self._broken(f"wait {wait.name} was matched twice")
        self._in_order(before, after)
        for event in after.events.values():
            held = len(holders.get(event.arrival, ()))
            if held != (1 if event.state == "matched" else 0):
                self._broken(f"event {event.id} is {event.state} and {held} waits hold it")
            known = before.events.get(event.arrival)
            if known is not None and known.state in ("consumed", "bad") and event.state != known.state:
                self._broken(f"event {event.id} was {known.state} and is {event.state}")

    def _in_order(self, before: Snapshot, after: Snapshot) -> None:
        """Check that the oldest event and the oldest wait found each other, for events that any run may take."""
        waits = [wait for wait in after.waits.values() if wait.name == "common"]
        matched = [wait for wait in waits if wait.event is not None and before.waits.get(wait.key) != wait]
        for wait in matched:
            if any(older.event is None and older.key < wait.key for older in waits):
                self._broken(f"wait {wait.key} was matched before an older one")
            if any(e.state == "unmatched" and e.arrival < (wait.event or 0) for e in after.events.values() if e.name == "common"):
                self._broken(f"event {wait.event} was matched before an older one")

    def _workers(self, before: Snapshot, after: Snapshot) -> None:
        for worker, dead in after.workers.items():
            if before.workers.get(worker) and not dead:
                self._broken(f"worker {worker} was marked dead and lives again")


def _difference(before: RunRow, after: RunRow) -> str:
    named = [
        f"{name} {old!r}→{new!r}"
        for name, old, new in zip(RunRow._fields, before, after, strict=True)
        if old != new and name not in ("last_transition", "digest")
    ]
    return f"{after.id}: " + ", ".join(named)
