"""`Store.apply`: every transition whose guards hold in one commit, the others refused and kept as evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected, Evidence

from .advance import guarded_update, holding, is_due, write_journal
from .beside import write_beside
from .evidence import keep
from .faults import unavailable
from .session import Session

STATEMENT_ERRORS = (ValueError, TypeError, OverflowError)  # of bindings: lone surrogates, integers over 63 bits


class _GuardsFailed(Exception):
    """At least one transition of the batch cannot be written: nothing was."""


def apply(session: Session, transitions: Sequence[Transition]) -> list[Verdict]:
    """Write *transitions* in one commit; see `Store.apply`."""
    if not transitions:
        return []
    try:
        return session.write(lambda s, now: _all(s, transitions, now))
    except _GuardsFailed:
        return session.write(lambda s, now: _those_that_hold(s, transitions, now))


def write_all(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    """Write *transitions* inside the open transaction; False: at least one does not hold (the caller rolls back).

    Raises:
        BatchRejected: a statement raised.
    """
    try:
        if not (all(is_due(t, now) for t in transitions) and guarded_update(session, transitions, now)):
            return False
        write_journal(session, transitions)
        return write_beside(session, transitions, now)
    except apsw.Error as error:
        raise unavailable(error, session.place.shown) or BatchRejected(str(error)) from error
    except STATEMENT_ERRORS as error:
        raise BatchRejected(str(error)) from error


def was_applied(session: Session, t: Transition) -> bool:
    """Return whether *t* is in the record already, under its own ID: its commit's answer was lost."""
    if session.run("apply.last", "SELECT 1 FROM runs WHERE key = ? AND last_transition = ?", (t.run, t.id)):
        return True
    if not t.entries:
        return False
    written = "SELECT 1 FROM journal WHERE generation = ? AND position = ? AND transition = ?"
    return bool(session.run("apply.written", written, (t.generation, t.entries[0].position, t.id)))


def _all(session: Session, transitions: Sequence[Transition], now: int) -> list[Verdict]:
    if not write_all(session, transitions, now):
        raise _GuardsFailed
    return [Verdict.APPLIED] * len(transitions)


def _those_that_hold(session: Session, transitions: Sequence[Transition], now: int) -> list[Verdict]:
    keys = holding(session, transitions, now)
    good = [t for t in transitions if t.run in keys and is_due(t, now)]
    if _one_each(good) and _together(session, good, now):
        applied = {t.id for t in good}
    else:
        applied = {t.id for t in good if _together(session, [t], now)}
    return [Verdict.APPLIED if t.id in applied else refuse(session, t, now) for t in transitions]


def _one_each(transitions: Sequence[Transition]) -> bool:
    return len({t.run for t in transitions}) == len(transitions)


def _together(session: Session, transitions: Sequence[Transition], now: int) -> bool:
    session.run("apply.savepoint", "SAVEPOINT some")
    written = write_all(session, transitions, now)
    if not written:
        session.run("apply.undo", "ROLLBACK TO some")
    session.run("apply.release", "RELEASE some")
    return written


def refuse(session: Session, t: Transition, now: int) -> Verdict:
    if was_applied(session, t):
        return Verdict.APPLIED
    detail = {"transition": t.id, "change": t.change, "revision": t.revision, "position": t.position, "generation": t.generation}
    keep(session, t.run, Evidence(now, "late_transition", t.owner, t.fence, json.dumps(detail)))
    return Verdict.REFUSED
