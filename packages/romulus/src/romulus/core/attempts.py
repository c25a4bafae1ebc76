"""Whether a failed or lost attempt is tried again, and when: pure decisions over attempt rows.

Numbers only grow: every attempt, lost or not, has the number after the last one's. What counts against
`Retry.max_attempts` is `failures`; what a crash that the run did not cause takes away counts as `losses`.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import DefinitionError, SerializationError
from .record import AttemptRow, HoldKind
from .retry import Retry

LOSSES_MAX = 5  # attempts of one command lost with claims that were not alone, before a person looks

_NEVER_RETRIED = (SerializationError, DefinitionError)  # the next attempt would be paid for, and end the same


@dataclass(frozen=True, slots=True)
class LossHold:
    """The run must be held: another attempt needs a person."""

    reason: str  # for people
    row: AttemptRow  # written with the hold, so that a release goes on with the next number
    kind: HoldKind = HoldKind.POISON


def after_failure(
    retry: Retry,
    row: AttemptRow | None,
    seq: int,
    digest: str,
    number: int,
    error_body: bytes,
    exception: BaseException,
    now: int,
    random01: float,
    *,
    name: str,
) -> AttemptRow | None:
    """Return the row of the next attempt after attempt *number* raised *exception*; None: the failure is the outcome."""
    failures = (row.failures if row else 0) + 1
    if never_again(retry, exception) or _used_up(retry, failures):
        return None
    due = now + retry.delay(failures, random01)
    losses, heartbeat = (row.losses, row.heartbeat) if row else (0, b"")
    return AttemptRow(seq, digest, _latest(row, number), failures, losses, due, error_body, heartbeat, name)


def after_loss(
    retry: Retry,
    row: AttemptRow | None,
    seq: int,
    digest: str,
    number: int,
    alone: bool,
    now: int,
    random01: float,
    *,
    name: str,
) -> AttemptRow | LossHold:
    """Return the row of the next attempt after attempt *number* was lost with its claim, or the hold.

    *alone*: the run was claimed alone, so the run itself is the likely cause, and the loss spends an attempt.
    A step with one attempt in all always holds: its body may have run, and is never run again without a person.
    """
    failures = (row.failures if row else 0) + alone
    losses = (row.losses if row else 0) + (not alone)
    due = now + retry.delay(failures, random01) if alone else now
    after = AttemptRow(seq, digest, _latest(row, number), failures, losses, due, b"", row.heartbeat if row else b"", name)
    why = _why_hold(retry, failures, losses, alone)
    if why is None:
        return after
    after.losses = 0  # a release starts the count again, never the number
    return LossHold(_reason(name, number, why), after)


def after_cut(retry: Retry, row: AttemptRow | None, seq: int, digest: str, number: int, now: int, *, name: str) -> AttemptRow | None:
    """Return the row of the next attempt after a worker that stopped cut attempt *number* off: it counts against no limit.

    None: the step allows one attempt only, so it is as good as lost.
    """
    return None if retry.max_attempts == 1 else uncounted(row, seq, digest, number, now, name=name)


def uncounted(row: AttemptRow | None, seq: int, digest: str, number: int, now: int, *, name: str) -> AttemptRow:
    """Return the row of the next attempt after attempt *number*, which counts against no limit."""
    failures, losses, heartbeat = (row.failures, row.losses, row.heartbeat) if row else (0, 0, b"")
    return AttemptRow(seq, digest, number, failures, losses, now, b"", heartbeat, name)


def never_again(retry: Retry, exception: BaseException) -> bool:
    """Return whether no attempt follows one that raised *exception*, however many are left."""
    return isinstance(exception, (*_NEVER_RETRIED, *retry.non_retryable))


def _latest(row: AttemptRow | None, number: int) -> int:
    return number if row is None else max(number, row.number)


def _used_up(retry: Retry, failures: int) -> bool:
    return retry.max_attempts is not None and failures >= retry.max_attempts


def _why_hold(retry: Retry, failures: int, losses: int, alone: bool) -> str | None:
    if retry.max_attempts == 1:
        return "the step allows one attempt only"
    if alone and _used_up(retry, failures):
        return f"that was the last of {retry.max_attempts} attempts, with the run claimed alone"
    if losses >= LOSSES_MAX:
        return f"{losses} attempts of it were lost this way"
    return None


def _reason(name: str, number: int, why: str) -> str:
    return (
        f"attempt {number} of step {name!r} was lost: its worker stopped before it reported, so it may or may not have done its work; "
        f"{why}. Look at what it did, then release the run to try it again, or cancel it"
    )
