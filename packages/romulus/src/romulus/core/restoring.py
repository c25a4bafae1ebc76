"""What a restore makes of what it finds: the pure part. A database that was put back from a backup is behind the world it has acted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from .duration import to_datetime
from .operations import SETTLED, OperationEvent, OperationRow, OperationState, after, hold_reason, key_has_room, why_stuck
from .record import Doubt, HoldKind, Run

FENCE_GAP: Final = 3_600 * 1_000_000  # fences go on so far beyond the clock: one that is an hour behind the old server's gives none twice
LEASE_MAX: Final = 60 * 1_000_000  # µs in which a worker of before that lives on notices that its lease has ended


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done."""

    incarnation: str
    doubt: Doubt
    freed: int  # runs that a worker had claimed, and that go on by themselves
    held: Sequence[Run]  # as they are now: held by the restore, or before, with operations that may have been sent
    operations: Sequence[OperationRow]  # as they are now: all that are not settled, those of ended runs included


def fence_above(fence: int, doubt: Doubt) -> int:
    """Return a fence above every one that was given out under *fence* after the backup."""
    return max(fence, doubt.restored_at) + FENCE_GAP


def doubted(row: OperationRow, doubt: Doubt) -> OperationRow:
    """Return what an operation that is not settled becomes: unknown, or held at once where nobody but a person can find out."""
    free = replace(row, owner=None, fence=fence_above(row.fence, doubt))
    if row.state is OperationState.HELD:
        return replace(
            free, cleared=False, hold_reason=f"{row.hold_reason}. {_since(doubt)}: it may have been resolved then, and sent again"
        )
    unknown = replace(
        free, state=after(row.state, OperationEvent.DOUBT, row.id), sends=max(row.sends, 1), first_sent_at=row.first_sent_at or doubt.since,
        may_leave_until=may_leave_until(row.protocol.timeout, doubt, row.may_leave_until), due=doubt.restored_at, looks=0, cleared=False,
        doubted=row.doubted or row.sends == 0, updated_at=doubt.restored_at,
    )  # fmt: skip
    if row.protocol.has_lookup or key_has_room(unknown, doubt.restored_at):
        return unknown
    held = after(unknown.state, OperationEvent.HOLD, row.id)
    return replace(unknown, state=held, due=None, hold_reason=hold_reason(unknown, why_stuck(row.protocol, unknown.sends)))


def may_leave_until(timeout: int, doubt: Doubt, known: int = 0) -> int:
    """Return until when a worker of before may still emit a send that takes *timeout* at most."""
    return max(known, doubt.restored_at + LEASE_MAX + timeout)


def why_held(operations: Sequence[OperationRow], doubt: Doubt) -> tuple[HoldKind, str]:
    """Return why a run is held. *operations*: those it awaits whose outcome is not known; none: the backup has none, but may lack some."""
    if operations:
        return HoldKind.REVIEW, _of_known(operations, doubt)
    return HoldKind.RESTORE, (
        f"{_since(doubt)}. The run may have gone on in that time, and sent operations that the backup does not have. Look for what it "
        f"wrote at the providers after {_time(doubt.since)}. `romulus runs release` lets it go on from the backup: steps that ended later "
        "are attempted again, and an operation that it comes to is looked up first, or sent under its key, or held for review; "
        "`romulus runs cancel` or `terminate` ends it"
    )


def _of_known(operations: Sequence[OperationRow], doubt: Doubt) -> str:
    reasons = [row.hold_reason for row in operations if row.state is OperationState.HELD]
    looked = [f"operation {row.name!r} (ID {row.id})" for row in operations if row.state is not OperationState.HELD]
    if looked:
        reasons.append(
            f"{', '.join(looked)} may have been sent or answered in that time: a worker looks it up, or sends it under its key, "
            "and the run goes on when it is settled"
        )
    return ". ".join([_since(doubt), *reasons])


def awaited(operations: Sequence[OperationRow]) -> dict[int, list[OperationRow]]:
    """Return the operations that their run's code awaits and that are not settled, by run."""
    found: dict[int, list[OperationRow]] = {}
    for row in operations:
        if row.awaited and row.state not in SETTLED:
            found.setdefault(row.run, []).append(row)
    return found


def _since(doubt: Doubt) -> str:
    since, until = _time(doubt.since), _time(doubt.restored_at)
    return f"the store was put back from a backup of {since} at {until}, and what was done between is forgotten"


def _time(us: int) -> str:
    return f"{to_datetime(us):%Y-%m-%d %H:%M:%S} UTC"
