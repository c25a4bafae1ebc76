"""Holds a run for a person: the outcome alone is always saved, so that a paid step is never paid again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from romulus.core.errors import ActivationTimeout, CleanUpFailed, Mismatch, SerializationError, Undecodable
from romulus.core.failures import dump_failure
from romulus.core.machine import Change
from romulus.core.operations import OperationState
from romulus.core.record import HoldKind
from romulus.core.requests import ends_cancelled
from romulus.core.text import escaped
from romulus.core.transition import Transition

from . import undelivered
from .draft import Draft

if TYPE_CHECKING:
    from romulus.core.vault import Vault

    from .driver import RunDriver

log = logging.getLogger("romulus.worker")
MEND = "mend the cause, then `romulus runs release`"
CANCEL_AGAIN = "It was cancelled, and may still clean up once it is released; cancel it again to end it as it stands"
SETTLE_FIRST = (
    "It was cancelled and stays held, since an operation that it awaits may have been applied: once that is settled "
    "(`romulus operations list`), cancel it again to end it as it stands"
)
HELD = (ActivationTimeout, Mismatch, Undecodable)  # what an advance can end with that no code of the run may see


def why(driver: RunDriver, error: BaseException) -> tuple[HoldKind, str]:
    """Return the kind and the words of a hold that *error* causes."""
    if isinstance(error, ActivationTimeout):
        seconds = driver.engine.settings.activation_limit / 1_000_000
        return HoldKind.HUNG, (
            f"workflow code did not give control back within {seconds:g} s; move the work into a step, then `romulus runs release`"
        )
    if isinstance(error, Undecodable) and not driver.engine.registry.vault.works():
        return HoldKind.CODE, f"{error}; mend the codec or what it depends on, then `romulus runs release`"
    return HoldKind.CODE, f"{error}; it goes on by itself when a worker with fitting code starts"


def held(driver: RunDriver, draft: Draft, kind: HoldKind, reason: str) -> Transition:
    """Return the transition that records what the draft holds, and how attempts ended meanwhile, and holds the run."""
    from .conclude import begun_text

    draft.outcomes_only()
    armed = begun_text(driver, undelivered.keep(driver, draft))
    if ends_cancelled(driver.run, kind, unsettled=unsettled(driver)):
        return _cut_short(driver, draft, reason, armed)
    return _hold(driver, draft, kind, reason, armed)


def unsettled(driver: RunDriver) -> bool:
    """Return whether the code awaits an operation that may have been sent, as far as is known here."""
    return driver.unsettled or any(tracked.state is not OperationState.QUEUED for tracked in driver.operations.values())


def of_cancelled(reason: str, cancels: int, *, unsettled: bool) -> str:
    """Return the words of a hold; those of a run that was cancelled say how that comes to its end."""
    return f"{reason}. {SETTLE_FIRST if unsettled else CANCEL_AGAIN}" if cancels else reason


def cleanup_failed(vault: Vault, run_id: str, reason: str) -> bytes | None:
    """Return the failure of a run that ends cancelled where it would be held; None: the App's codec cannot encode it."""
    log.warning("run %r was cancelled while it was held, would be held again and ends: %s", run_id, reason)
    try:
        return vault.seal_failure(dump_failure(CleanUpFailed(run_id, reason)), "the cancellation")
    except SerializationError:
        return None


def _cut_short(driver: RunDriver, draft: Draft, reason: str, armed: str) -> Transition:
    """Return the transition that ends a run which a person has cancelled in a hold, and that would be held once more."""
    reason = escaped(reason)
    return draft.seal(
        driver.run, driver.engine.owner.id, Change.END_CANCELLED, armed,
        cancel_seq=driver.cancel_seen, digest=driver.run.digest, hold=("", reason),
        failure=cleanup_failed(driver.engine.registry.vault, driver.run.id, reason),
        parent=driver.parent, operates=driver.operates, pooled=driver.pools,
    )  # fmt: skip


def _hold(driver: RunDriver, draft: Draft, kind: HoldKind, reason: str, armed: str) -> Transition:
    if kind is not HoldKind.REVIEW:
        reason = of_cancelled(reason, driver.cancel_seen, unsettled=unsettled(driver))
    excluded = f"{driver.run.excluded} {driver.digest}".strip() if kind is HoldKind.CODE else None
    return draft.seal(
        driver.run, driver.engine.owner.id, Change.HOLD, armed,
        cancel_seq=driver.cancel_seen, digest=driver.run.digest, hold=(kind, escaped(reason)), excluded=excluded,
        parent=driver.parent, operates=driver.operates, pooled=driver.pools,
    )  # fmt: skip


def outcome_alone(driver: RunDriver, draft: Draft, error: BaseException) -> Transition:
    """Return the transition with the outcomes delivered so far and nothing that the broken advance asked for."""
    return held(driver, draft, *why(driver, error))


def unforeseen(driver: RunDriver, draft: Draft, error: Exception) -> Transition:
    """Return the transition with the outcomes delivered so far, where something else than the run's code has failed."""
    words = f"{type(error).__name__}: {error}"
    if not isinstance(error, SerializationError):  # which is of the App's codec
        log.error("run %r cannot go on: %s", driver.run.id, words, exc_info=error)
    return held(driver, draft, HoldKind.COMMIT, f"what the run did next cannot be committed: {words}; {MEND}")


def uncommittable(driver: RunDriver, draft: Draft, transition: Transition, error: str) -> Transition:
    """Return what to write instead of a transition that alone makes the store raise: its outcomes, else the hold alone.

    A run that cannot even be ended is held, cancelled or not.
    """
    reason = f"what the run did next cannot be committed: {error}; {MEND}"
    again = Draft(driver.engine.next_transition_id())
    if transition.change is Change.HOLD:
        return _hold(driver, again, HoldKind.COMMIT, reason, driver.run.armed)  # what cannot be recorded counts as lost
    again.entries.extend(entry._replace(transition=again.id) for entry in transition.entries)
    again.settled.extend(draft.settled)
    again.taken.extend(transition.taken)
    again.marks.extend(draft.marks)
    again.forsaken.extend(draft.forsaken)
    again.closes.extend(draft.closes)
    again.returned.extend(draft.returned)
    again.attempts.update(draft.attempts)
    again.not_before, again.progressed = transition.not_before, transition.progressed
    if transition.change is Change.END_CANCELLED:
        return _hold(driver, again, HoldKind.COMMIT, reason, transition.armed)
    return held(driver, again, HoldKind.COMMIT, reason)


def hung(driver: RunDriver, draft: Draft) -> None:
    """Hand the outcomes of an activation that cannot be interrupted to the writer, from the watchdog's thread."""
    driver.engine.owner.hold_from_thread(outcome_alone(driver, draft, ActivationTimeout()))


def history_limit(driver: RunDriver) -> str:
    """Return the words of a hold at the history limit."""
    return (
        f"the history has reached {driver.engine.settings.history_max} entries; "
        "let the workflow continue_as_new() well before, or fork it from an earlier position"
    )


def deadlock(driver: RunDriver) -> str:
    """Return the words of a deadlock: what each task awaits, and what can be done."""
    awaited = "; ".join(driver.instance.awaiting())
    return f"nothing can wake this run any more: {awaited}. Deploy the mended code, then `romulus runs release`, or cancel the run"
