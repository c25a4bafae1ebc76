"""What a person may ask of a run: cancel, terminate, release, retry, fork. Pure: each says what the row becomes.

Every status comes from `machine.after`. The functions are what `Store.change` is given to decide with; where one needs
the journal (retry, fork) the caller reads it first: the journal of an ended generation never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from .children import is_made
from .errors import IllegalTransition
from .machine import TABLE, TERMINAL, Change, RunStatus, after, next_fence
from .record import Entry, Generation, HoldKind, Kind, Run, StartedChild
from .seeds import Seeds
from .transition import CopyFrom, NewGeneration, NewRun, Next

NOTHING_ARMED = "[]"
RETRIED = frozenset(TABLE[Change.RETRY])  # how a run has ended that can be retried


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of a journal that a new generation or a fork begins with."""

    below: int  # entries with a smaller position are copied
    cancel_seq: int = 0  # the last cancel delivered within it: a later request must have a higher number


def request_cancel(run: Run, reason: str, now: int) -> Next | None:
    """Return the run with one more cancel request; None: it has ended, there is nothing to cancel.

    A run no code has run for ends cancelled at once; any other delivers the request to its code, a held one by
    becoming claimable again: it keeps the reason, so that it is not held once more (see `ends_cancelled`).
    """
    if run.status in TERMINAL:
        return None
    if run.started_at is None and run.status in (RunStatus.SCHEDULED, RunStatus.PENDING):
        return Next(_ended(run, Change.CANCEL_UNSTARTED, reason, now))
    status = after(run.status, Change.REQUEST_CANCEL, run.id)
    asked = replace(run, status=status, cancel_seq=run.cancel_seq + 1, cancel_reason=reason, updated_at=now)
    if run.status is RunStatus.RUNNING:
        return Next(asked)  # its owner delivers it
    if run.status is RunStatus.HELD:
        return Next(replace(_let_go(asked, now), hold_reason=run.hold_reason))
    return Next(replace(asked, wake_at=now))


def ends_cancelled(run: Run, kind: HoldKind, *, unsettled: bool) -> bool:
    """Return whether a claimed run that is to be held ends cancelled instead: it was cancelled in a hold, and its code cannot clean up.

    Args:
        unsettled: its code awaits an operation that may have been sent; a person settles that first.
    """
    return bool(run.hold_reason) and kind is not HoldKind.REVIEW and not unsettled


def terminate(run: Run, reason: str, now: int) -> Next | None:
    """Return the run stopped where it stands, its claim void; None: it was terminated before.

    Raises:
        IllegalTransition: the run ended in another way.
    """
    if run.status is RunStatus.TERMINATED:
        return None
    ended = _ended(run, Change.TERMINATE, reason, now)
    return Next(replace(ended, owner=None, fence=next_fence(run.fence, now)))


def ask_child(
    seed: Callable[[], bytes], run: Run, generation: Generation, how: str, reason: str, entries: Sequence[Entry], unsettled: bool, now: int
) -> Next | None:
    """Return what a request makes of a child, None: nothing. A live one is told to end; one that ended badly begins again.

    Args:
        seed: makes the seed of a retried child.
        how: "cancel", "terminate" or "retry".
        entries: those of the journal that a retry looks at.
        unsettled: an operation of it may have been sent and is not settled: a retry could send it again under another ID.
    """
    if how == "retry":
        return _retry_child(run, generation, entries, seed, now) if run.status in RETRIED and not unsettled else None
    why = reason or "its parent has ended"
    return terminate(run, why, now) if how == "terminate" else request_cancel(run, why, now)


def release(run: Run, now: int) -> Next:
    """Return a held run made claimable again in the same generation, its losses and exclusions forgotten.

    Raises:
        IllegalTransition: the run is not held.
    """
    status = after(run.status, Change.RELEASE, run.id)
    return Next(_let_go(replace(run, status=status, updated_at=now), now))


def retry(run: Run, generation: Generation, prefix: Prefix, seed: bytes, now: int) -> Next:
    """Return an ended run in a new generation that begins with *prefix* of the journal of *generation*.

    Raises:
        IllegalTransition: the run is live or succeeded, or began another generation meanwhile.
    """
    status = after(run.status, Change.RETRY, run.id)
    if generation.key != run.generation_key:
        raise IllegalTransition(run.status, "be retried from a generation that is no longer its last", run.id)
    begins = NewGeneration(
        generation.workflow, generation.version, generation.input, generation.input_digest,
        Seeds.parse(generation.seeds).renewed(prefix.below, seed).dump(), generation.timeout,
        copy=CopyFrom(generation.key, prefix.below), started_at=_start_kept(generation, prefix),
    )  # fmt: skip
    again = replace(
        run, status=status, generation=run.generation + 1, position=prefix.below, cancel_seq=prefix.cancel_seq,
        cancel_reason="", armed=NOTHING_ARMED, started_at=begins.started_at, finished_at=None, deadline=None, updated_at=now,
    )  # fmt: skip
    return Next(_let_go(again, now), begins)


def _retry_child(run: Run, generation: Generation, entries: Sequence[Entry], seed: Callable[[], bytes], now: int) -> Next:
    return retry(run, generation, retry_prefix(run.status, generation.ended_by, entries, run.position), seed(), now)


def fork_of(run: Run, generation: Generation, below: int, new_id: str, version: str | None, seed: bytes) -> NewRun:
    """Return a new run that begins with the entries of *generation* before position *below*; *run* is left as it is."""
    kept = Prefix(below)
    return NewRun(
        run.namespace, new_id, generation.workflow, version or generation.version,
        RunStatus.PENDING, generation.input, generation.input_digest, Seeds.parse(generation.seeds).with_new(below, seed).dump(),
        wake_at=0, priority=run.priority, timeout=generation.timeout, attributes=run.attributes,
        copy=CopyFrom(generation.key, below), started_at=_start_kept(generation, kept),
    )  # fmt: skip


def retry_prefix(status: RunStatus, ended_by: int | None, entries: Iterable[Entry], position: int) -> Prefix:
    """Return what a retry keeps: the journal up to the outcome that ended the run.

    Failed: up to the failed outcome *ended_by*, or everything where the code itself failed. Cancelled: up to the
    first cancel. Terminated: everything.
    """
    cancels: list[Entry] = []
    below = position
    for entry in entries:
        if entry.kind == Kind.CANCEL:
            cancels.append(entry)
        if status is RunStatus.FAILED and entry.position == ended_by and entry.failed:
            below = entry.position
    if status is RunStatus.CANCELLED and cancels:
        below = cancels[0].position
    return Prefix(below, max((entry.seq for entry in cancels if entry.position < below), default=0))


def still_ending(children: Iterable[StartedChild], entries: Iterable[Entry], below: int) -> list[str]:
    """Return the run IDs of children that were asked to end and have not yet, and that a pass with *entries* below *below* goes on with.

    It would be told that they were cancelled. Those whose ID the engine made, but for a handle's, are started anew instead.
    """
    handles = {entry.seq for entry in entries if entry.kind == Kind.STARTED and entry.position < below}
    return [
        child.run_id
        for child in children
        if RunStatus(child.status) not in TERMINAL and child.on_close != "abandon" and (child.seq in handles or not is_made(child.run_id))
    ]


def _ended(run: Run, change: Change, reason: str, now: int) -> Run:
    status = after(run.status, change, run.id)
    return replace(
        run, status=status, cancel_reason=reason or run.cancel_reason, wake_at=None, hold_kind="", hold_reason="",
        updated_at=now, finished_at=now,
    )  # fmt: skip


def _let_go(run: Run, now: int) -> Run:
    """Make *run* due at once with a clean slate; a cached instance of it is no longer current."""
    return replace(run, revision=run.revision + 1, losses=0, excluded="", hold_kind="", hold_reason="", wake_at=now)


def _start_kept(generation: Generation, prefix: Prefix) -> int | None:
    """A copied journal needs the time it began at; without one the new pass begins when it is claimed."""
    return generation.started_at if prefix.below else None
