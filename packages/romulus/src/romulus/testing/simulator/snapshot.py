"""What the database holds after a commit, read through a connection of the simulation's own."""

# ruff: noqa: S608  # the columns are literals of this module
from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apsw

from romulus.core.record import Armed
from romulus.core.transition import Transition

EVIDENCE_MAX = 100  # rows of one run that a store keeps


class RunRow(NamedTuple):
    """A run's row, as far as the checks read it."""

    key: int
    id: str
    status: str
    generation: int
    generation_key: int
    position: int
    revision: int
    owner: str | None
    fence: int
    cancel_seq: int
    armed: str
    losses: int
    wake_at: int | None
    hold_kind: str
    hold_reason: str
    digest: str
    excluded: str
    last_transition: int

    @property
    def attempts(self) -> list[Armed]:
        """Return the armed attempts."""
        return [Armed(*each) for each in json.loads(self.armed)] if self.armed else []


class EntryRow(NamedTuple):
    """A journal entry as stored."""

    rowid: int
    generation: int
    position: int
    kind: str
    seq: int
    name: str
    attempt: int
    at: int
    failed: int
    body: bytes
    digest: bytes
    info: str
    fence: int
    transition: int


class WaitRow(NamedTuple):
    """An open wait."""

    key: int
    run: int
    seq: int
    name: str
    event: int | None


class EventRow(NamedTuple):
    """A stored event."""

    arrival: int
    id: str
    name: str
    state: str
    run: int | None


class PoolRow(NamedTuple):
    """An attempt in a pool."""

    key: int
    run: int
    generation: int
    seq: int
    number: int
    state: str
    owner: str | None
    fence: int


@dataclass(slots=True)
class Snapshot:
    """All of it."""

    runs: dict[int, RunRow] = field(default_factory=dict[int, RunRow])
    waits: dict[int, WaitRow] = field(default_factory=dict[int, WaitRow])
    events: dict[int, EventRow] = field(default_factory=dict[int, EventRow])
    pools: dict[int, PoolRow] = field(default_factory=dict[int, PoolRow])
    wakes: set[int] = field(default_factory=set[int])  # keys of runs that something was deposited for
    workers: dict[str, int] = field(default_factory=dict[str, int])  # ID to dead
    generations: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])  # key to (run key, number)
    entries: list[EntryRow] = field(default_factory=list[EntryRow])  # those new since the snapshot before


class Reader:
    """Reads snapshots, and keeps the whole journal as it was first seen."""

    def __init__(self, path: str) -> None:
        self._connection: Any = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        self._last_row = 0
        self._version = -1
        self.journal: dict[int, list[EntryRow]] = {}  # by generation key

    def close(self) -> None:
        """Disconnect."""
        self._connection.close(True)

    def changed(self) -> bool:
        """Return whether somebody has committed since the last call."""
        (version,) = self._all("PRAGMA data_version")[0]
        changed, self._version = version != self._version, version
        return bool(changed)

    def read(self) -> Snapshot:
        """Return what is there now."""
        self._connection.execute("BEGIN").fetchall()
        try:
            return self._read()
        finally:
            self._connection.execute("COMMIT").fetchall()

    def whole_journal(self) -> list[EntryRow]:
        """Return every entry as it is now."""
        return [EntryRow(*row) for row in self._all(f"SELECT {_JOURNAL} FROM journal ORDER BY rowid")]

    def evidence_of(self, transition: Transition) -> bool:
        """Return whether evidence of a refused transition is kept, or the run has as much as is kept."""
        found = self._all("SELECT detail FROM evidence WHERE run = ?", (transition.run,))
        return len(found) >= EVIDENCE_MAX or any(json.loads(detail).get("transition") == transition.id for (detail,) in found)

    def recorded(self, transition: Transition) -> bool:
        """Return whether a transition is the last of its run, or an entry bears its ID."""
        return bool(
            self._all("SELECT 1 FROM runs WHERE key = ? AND last_transition = ?", (transition.run, transition.id))
            or self._all("SELECT 1 FROM journal WHERE generation = ? AND transition = ?", (transition.generation, transition.id))
        )

    def rows(self, sql: str, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._all(sql, given)

    def _read(self) -> Snapshot:
        new = [EntryRow(*row) for row in self._all(f"SELECT {_JOURNAL} FROM journal WHERE rowid > ? ORDER BY rowid", (self._last_row,))]
        for entry in new:
            self.journal.setdefault(entry.generation, []).append(entry)
            self._last_row = entry.rowid
        return Snapshot(
            _keyed(RunRow(*row) for row in self._all(f"SELECT {', '.join(RunRow._fields)} FROM runs")),
            _keyed(WaitRow(*row) for row in self._all("SELECT key, run, seq, name, event FROM waits")),
            _keyed(EventRow(*row) for row in self._all("SELECT arrival, id, name, state, run FROM events")),
            _keyed(PoolRow(*row) for row in self._all(f"SELECT {', '.join(PoolRow._fields)} FROM pool_attempts")),
            {run for (run,) in self._all("SELECT run FROM wakes")},
            dict(self._all("SELECT id, dead FROM workers")),
            {key: (run, number) for key, run, number in self._all("SELECT key, run, number FROM generations")},
            new,
        )

    def _all(self, sql: str, given: tuple[Any, ...] = ()) -> list[Any]:
        rows: list[Any] = self._connection.execute(sql, given).fetchall()
        return rows


_JOURNAL = "rowid, generation, position, kind, seq, name, attempt, at, failed, body, digest, info, fence, transition"


def _keyed(rows: Iterable[Any]) -> dict[int, Any]:
    return {row[0]: row for row in rows}
