"""Guards of the operations' protocol taken out of the engine, one at a time: each must be missed by the simulator."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from romulus.core import operations
from romulus.core.operations import ENDINGS, Ending, OperationEvent, OperationState
from romulus.testing.simulator.operating import run_operating
from romulus.testing.simulator.scenario import LEASE
from romulus.testing.simulator.seed import Verdict
from romulus.testing.simulator.writes import STOPS, every_crash_of, every_stop_of, frozen_send
from romulus.worker.operations import arming, claimed, sending
from romulus.worker.settings import SECOND
from tests.simulation.mutants import MUTANTS as ALL
from tests.simulation.mutants import Apply, in_sql

SEEDS = 150
SHORT, LATE, _ = STOPS


@dataclass(frozen=True)
class Mutant:
    """A guard that is taken out, and the worlds of which one must miss it."""

    apply: Apply
    worlds: Callable[[], Iterator[Verdict]]


def seeds(begin: int = 0) -> Iterator[Verdict]:
    """Return random worlds, those from seed *begin* on first."""
    return (run_operating((begin + n) % SEEDS) for n in range(SEEDS))


def crashes(kind: str, behaviour: str, stride: int = 7) -> Callable[[], Iterator[Verdict]]:
    """Return one write with a crash at every so many crash points."""
    return lambda: every_crash_of(kind, behaviour, stride)


def stops(kind: str, behaviour: str, duration: int, stride: int = 7) -> Callable[[], Iterator[Verdict]]:
    """Return one write with a stop of *duration* µs at every so many crash points."""
    return lambda: every_stop_of(kind, behaviour, duration, stride)


def in_code(owner: Any, name: str, old: str, new: str) -> Apply:
    """Replace text in a function of a module, or of a class."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real: Any = inspect.unwrap(getattr(owner, name))
        text = textwrap.dedent(inspect.getsource(real))
        assert old in text, f"{name} has no {old!r} any more"
        made: dict[str, Any] = {}
        exec(
            compile("from __future__ import annotations\n" + text.replace(old, new), f"<mutant of {name}>", "exec"), real.__globals__, made
        )
        patch.setattr(owner, name, made[name])

    return mutate


def _unknown_is_queued(patch: pytest.MonkeyPatch) -> None:
    real: Any = arming._known

    def known(driver: Any, command: Any, row: Any) -> None:
        if row.state is OperationState.ARMED:
            row.state = OperationState.QUEUED
        real(driver, command, row)

    patch.setattr(arming, "_known", known)


def _armed_again(patch: pytest.MonkeyPatch) -> None:
    _unknown_is_queued(patch)
    in_sql("", " WHERE operations.state = 'queued'", " WHERE true").apply(patch)


def _timeout_taken_for_not_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(arming, "ENDINGS", {**ENDINGS, Ending.TIMEOUT: OperationEvent.DISARM})


async def _armed_by_nobody(self: Any, row: Any, spec: Any, latest: int) -> Any:
    return row


def _sent_unarmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claimed.ClaimedSends, "_arm", _armed_by_nobody)


def _by_name(name: str) -> Apply:
    return next(mutant.apply for mutant in ALL if mutant.name == name)


MUTANTS: Mapping[str, Mutant] = {
    "not found is believed at once": Mutant(
        in_code(operations, "believable_at", "return max(", "return 0 * max("), crashes("looked_up", "applies late, the sender dies")
    ),
    "not found is believed before the claim's sends have left": Mutant(
        in_code(operations, "believable_at", "row.may_leave_until", "0"), stops("looked_up", "applies late, the sender dies", SHORT)
    ),
    "not found is believed before a write shows": Mutant(
        in_code(operations, "believable_at", "row.protocol.settle", "0"),
        lambda: iter([frozen_send("looked_up", "applies late, the sender dies", LEASE - SECOND // 10)]),
    ),
    "a resend is not waited for": Mutant(
        in_code(operations, "_by_sender", "max(row.may_leave_until, report.may_leave_until)", "row.may_leave_until"), seeds
    ),
    "a key is trusted that nobody promised": Mutant(
        in_code(operations, "key_has_room", "not protocol.idempotent", "False"), crashes("blind", "loses the answer")
    ),
    "a key is trusted beyond its lifetime": Mutant(
        in_code(operations, "key_has_room", "return protocol.key_lifetime is None or", "return True or"), seeds
    ),
    "the lease is not checked before the send": Mutant(
        in_code(sending.Sender, "_check", "send.told or not send.may_leave()", "send.told"), stops("looked_up", "answers", LATE)
    ),
    "the lease is checked, the claim's end is not": Mutant(
        in_code(arming, "begin", "engine.owner.may_arm() and engine.store.estimated_now() < latest", "engine.owner.may_arm()"),
        stops("looked_up", "answers", LATE),
    ),
    "a settler's send is not checked": Mutant(
        in_code(claimed.ClaimedSends, "_may_leave", "engine.owner.may_arm() and engine.store.estimated_now() < latest", "True"),
        stops("looked_up", "loses the request", LATE),
    ),
    "a pool's send is not checked": Mutant(
        in_code(claimed.ClaimedSends, "_may_leave", "engine.owner.may_arm() and engine.store.estimated_now() < latest", "True"),
        stops("pooled", "answers", LATE),
    ),
    "a pool's worker sends what it has not armed": Mutant(_sent_unarmed, crashes("pooled", "answers")),
    "what a dead worker of the pool had armed is queued again": Mutant(
        in_sql("", "CASE state WHEN 'armed' THEN ?3 ELSE state END, owner = NULL", "'queued', owner = NULL").apply,
        crashes("pooled", "applies late, the sender dies", 1),
    ),
    "an operation is sent before its arming is durable": Mutant(
        _by_name("a body begins before its attempt is recorded"), crashes("looked_up", "answers")
    ),
    "a settler sends what it has not armed": Mutant(_sent_unarmed, crashes("looked_up", "loses the request")),
    "a settler sends although its arming was refused": Mutant(
        in_code(claimed.ClaimedSends, "_arm", "armed is not None and armed.changed", "armed is not None"), seeds
    ),
    "what an earlier claim armed is armed again": Mutant(_armed_again, partial(seeds, 35)),
    "an armed operation of a lost claim is left": Mutant(
        in_sql("", "NOT EXISTS (SELECT 1 FROM runs r", "EXISTS (SELECT 1 FROM runs r").apply, crashes("keyed", "answers")
    ),
    "a settled operation is told to nobody": Mutant(in_sql("", "?7 FROM runs WHERE key = ?1", "?7 FROM runs WHERE key = -?1").apply, seeds),
    "a send without an answer is taken for one that never left": Mutant(
        _timeout_taken_for_not_sent, crashes("looked_up", "loses the answer")
    ),
}
