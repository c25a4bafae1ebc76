"""The state machine of a run: everything that decides which status may follow which lives here."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from .errors import IllegalTransition


class RunStatus(StrEnum):
    """Where a run stands."""

    SCHEDULED = "scheduled"  # its start lies in the future
    PENDING = "pending"  # due and unclaimed
    RUNNING = "running"  # claimed by a worker
    WAITING = "waiting"  # parked on timers, waits, children or back-off; claimed by nobody
    HELD = "held"  # waits for a person
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"


class Change(StrEnum):
    """What can happen to a run. The value reads after "a run that is … cannot"."""

    CLAIM = "be claimed"  # a worker takes it
    FREE = "be freed"  # its owner is dead, or gives it back
    ADVANCE = "advance"  # outcomes recorded, attempts armed
    PARK = "park"  # only timers, waits, children or back-off are left
    HOLD = "be held"  # it needs a person
    SUCCEED = "succeed"
    FAIL = "fail"
    END_CANCELLED = "end cancelled"  # its code ended after an accepted cancel
    CONTINUE = "continue as new"  # it begins its next generation
    REQUEST_CANCEL = "be cancelled"
    CANCEL_UNSTARTED = "be cancelled before it starts"
    TERMINATE = "be terminated"
    RELEASE = "be released"  # a person lets a held run go on
    RETRY = "be retried"  # a person begins a new generation of an ended run
    RESTORE = "be held after a restore"  # the store was put back from a backup: what it did since is forgotten


S, C = RunStatus, Change
LIVE = frozenset({S.SCHEDULED, S.PENDING, S.RUNNING, S.WAITING, S.HELD})
TERMINAL = frozenset(S) - LIVE
CLAIMABLE = frozenset({S.SCHEDULED, S.PENDING, S.WAITING})


def _from(*sources: RunStatus, to: RunStatus) -> dict[RunStatus, RunStatus]:
    return dict.fromkeys(sources, to)


TABLE: Mapping[Change, Mapping[RunStatus, RunStatus]] = MappingProxyType(
    {
        C.CLAIM: _from(*CLAIMABLE, to=S.RUNNING),
        C.FREE: _from(S.RUNNING, to=S.PENDING),
        C.ADVANCE: _from(S.RUNNING, to=S.RUNNING),
        C.PARK: _from(S.RUNNING, to=S.WAITING),
        C.HOLD: _from(S.RUNNING, to=S.HELD),
        C.SUCCEED: _from(S.RUNNING, to=S.SUCCEEDED),
        C.FAIL: _from(S.RUNNING, to=S.FAILED),
        C.END_CANCELLED: _from(S.RUNNING, to=S.CANCELLED),
        C.CONTINUE: _from(S.RUNNING, to=S.PENDING),
        # A run that code has run for must deliver the cancel to that code; a running one keeps its owner meanwhile.
        C.REQUEST_CANCEL: {S.PENDING: S.PENDING, S.WAITING: S.WAITING, S.RUNNING: S.RUNNING, S.HELD: S.PENDING},
        C.CANCEL_UNSTARTED: _from(S.SCHEDULED, S.PENDING, to=S.CANCELLED),
        C.TERMINATE: _from(*LIVE, to=S.TERMINATED),
        C.RELEASE: _from(S.HELD, to=S.PENDING),
        C.RETRY: _from(S.FAILED, S.CANCELLED, S.TERMINATED, to=S.PENDING),
        C.RESTORE: _from(*CLAIMABLE, S.RUNNING, to=S.HELD),
    }
)

# A stale finish or park must not overwrite a cancel that was accepted meanwhile: these compare cancel_seq as well.
GUARDS_CANCEL = frozenset({C.PARK, C.SUCCEED, C.FAIL, C.END_CANCELLED, C.CONTINUE})
# After these the run belongs to nobody.
ENDS_CLAIM = frozenset({C.FREE, C.PARK, C.HOLD, C.SUCCEED, C.FAIL, C.END_CANCELLED, C.CONTINUE, C.TERMINATE, C.RESTORE})


def after(status: RunStatus, change: Change, run_id: str = "") -> RunStatus:
    """Return the status that *change* leads to from *status*.

    Raises:
        IllegalTransition: the status does not accept the change.
    """
    try:
        return TABLE[change][status]
    except KeyError:
        raise IllegalTransition(status, change, run_id) from None


def next_fence(fence: int, store_now: int) -> int:
    """Return the fence of a new claim: above every earlier one, also those of before a restore or failover."""
    return max(fence + 1, store_now)
