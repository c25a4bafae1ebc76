"""What a look may pass over: while an old transaction stays open, what is taken leaves dead index entries at the head of each queue.

A look remembers, with the snapshot it was made in, below which place nothing was left: by `queue_at` in a queue of runs, by key in a list
of what is to be done (`wakes`, `to_match`, `to_close`). Whatever came below it since was written by a transaction which that snapshot did
not see: one that ran then, or one that came after. Rows are stamped with their transaction (`queued_by`), so the next look finds exactly
those by an index, and lowers its floors to them first. So a floor hides nothing, whenever a transaction commits and whatever time, rank
or key it gave. Transaction numbers are one server's: another server, a restart or a lost connection voids what is remembered, and once in
a while a look is made without it, should a row have been changed by hand.
"""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, LiteralString

from .rows import Row

BOTTOM: Final = -(2**63)
TOP: Final = 2**63 - 1
NOBODY: Final = -1  # a number of no transaction: of an empty list a planner that sees it concludes anything, and once took a wrong index
FRESH_MAX: Final = 10_000  # runs since the look before that are looked at one by one; beyond that the queues are looked at whole
WHOLE_EVERY: Final = 15_000_000  # µs
KEPT_MAX: Final = 16  # looks remembered: one for each set of workflows served in a process, and one at the lists

# What a look returns of its own snapshot.
SNAPSHOT: Final[LiteralString] = (
    "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, "
    "ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) x)"
)
SNAPSHOT_COLUMNS: Final = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Which transactions a look saw: none that is among *running*, none from *end* on."""

    server: int = 0  # µs: when the server was started, which tells it from every other
    end: int = TOP  # nothing is fresh to a look that remembers nothing: it looks at all
    running: tuple[int, ...] = (NOBODY,)

    @property
    def quiet(self) -> bool:
        """Return whether no transaction was running."""
        return self.running == (NOBODY,)

    @classmethod
    def of(cls, row: Row) -> Snapshot:
        """Return the snapshot of a row of `SNAPSHOT`."""
        server, end, running = row
        return cls(server, end, (NOBODY, *running))


NOTHING: Final = Snapshot()


@dataclass(frozen=True, slots=True)
class Lists:
    """What a look leaves for the next one at the lists: the lowest keys in them."""

    snapshot: Snapshot = NOTHING
    wake: int = BOTTOM
    match: int = BOTTOM
    close: int = BOTTOM

    @classmethod
    def of(cls, row: Row) -> Lists:
        """Return what a row of `LOWEST, SNAPSHOT` says."""
        lowest = (TOP if key is None else key for key in row[:LOWEST_COLUMNS])
        return cls(Snapshot.of(row[LOWEST_COLUMNS:]), *lowest)

    @property
    def given(self) -> tuple[Any, ...]:
        """Return the parameters of `lists`."""
        return *self.keys, self.snapshot.running

    @property
    def keys(self) -> tuple[Any, ...]:
        """Return those of `lists` where no transaction was running."""
        return self.wake, self.match, self.close, self.snapshot.end

    @property
    def wakes(self) -> tuple[Any, ...]:
        """Return the parameters of `lowest` for the wakes."""
        return self.wake, self.snapshot.end, self.snapshot.running

    @property
    def closes(self) -> tuple[Any, ...]:
        """Return the parameters of `lowest` for the requests at children."""
        return self.close, self.snapshot.end, self.snapshot.running


@dataclass(frozen=True, slots=True)
class Queues:
    """What a look leaves for the next one at the same queues of runs."""

    snapshot: Snapshot = NOTHING
    now: int = 0  # store µs
    floors: Sequence[tuple[int, int, int, int]] = ()  # of each serve: queue_at of what is due, ranked, about to rise, and due later


@dataclass(slots=True)
class Remembered:
    """Looks by what was looked for, as long as they are of use."""

    _kept: dict[Hashable, tuple[int, int, Any]] = field(default_factory=dict[Hashable, tuple[int, int, Any]])

    def of(self, what: Hashable, now: int, losses: int) -> Any:
        """Return the look before at *what*; None: look at everything. *now*: monotonic µs; *losses*: connections lost so far."""
        begun, before, look = self._kept.get(what, (0, -1, None))
        return look if before == losses and now - begun < WHOLE_EVERY else None

    def keep(self, what: Hashable, look: object, now: int, losses: int, *, whole: bool) -> None:
        """Remember a look at *what*; *whole*: it looked at everything."""
        begun, *_ = (now,) if whole else self._kept.get(what, (now,))
        self._kept.pop(what, None)
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[what] = (begun, losses, look)


def lowest(table: LiteralString, floor: LiteralString, end: LiteralString, running: LiteralString | None) -> LiteralString:
    """Return the expression for the key from which on a list must be looked at; *floor*, *end*, *running*: what the look before left.

    By an expression of the key, else the planner walks all keys from the lowest on. *running* None: no transaction was.
    """
    fresh: LiteralString = f"(SELECT min(x.key + 0) FROM romulus.{table} x WHERE x.queued_by"
    ran: LiteralString = "" if running is None else f", {fresh} = ANY({running}::bigint[]))"
    return f"least({floor}, {fresh} >= {end}){ran})"


def lists(
    wake: LiteralString, match: LiteralString, close: LiteralString, end: LiteralString, running: LiteralString | None
) -> LiteralString:  # fmt: skip
    """Return the CTE `l`, which says from which keys on the lists must be looked at."""
    return (
        f"l AS MATERIALIZED (SELECT {lowest('wakes', wake, end, running)} AS wake, {lowest('to_match', match, end, running)} AS match, "
        f"{lowest('to_close', close, end, running)} AS close)"
    )


def lowest_of(table: LiteralString, column: LiteralString) -> LiteralString:
    """Return the expression for the lowest key that is in a list, in a statement with the CTE `l`."""
    return f"(SELECT x.key FROM romulus.{table} x WHERE x.key >= (SELECT {column} FROM l) ORDER BY x.key LIMIT 1)"


LOWEST: Final[LiteralString] = f"{lowest_of('wakes', 'wake')}, {lowest_of('to_match', 'match')}, {lowest_of('to_close', 'close')}"
LOWEST_COLUMNS: Final = 3
