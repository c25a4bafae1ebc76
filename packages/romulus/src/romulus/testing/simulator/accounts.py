"""What must hold of every operation once a seed is over (promise 6), and exactly what nobody can promise.

A process that stands still between its last check of the lease and the first byte sends when it goes on, whatever the store says by then.
Only such a send is excused, and only for what it does itself. A wall clock set forward takes what it jumps out of the time that is waited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from romulus.core.operations import SETTLED

from .provider import OPERATIONS, SETTLE, SHOWS, SLOW, TIMEOUT, Beginning, Emission, Provider
from .scenario import LEASE
from .world import World

UNAPPLIED = ("rejected", "not sent", "withdrawn")
MARGIN = TIMEOUT + SETTLE - SLOW - SHOWS  # µs that a clock may jump while "not found" is not believed yet
TURN = 100_000  # µs of virtual time that the callbacks between a check and a body take at most


class Accounts:
    """The operations of a world that is over, and what a provider saw of them."""

    def __init__(self, world: World, provider: Provider, rows: Mapping[str, tuple[Any, ...]]) -> None:
        """*rows*: (name, state, body, sends) by operation ID."""
        self._world, self._provider, self._rows = world, provider, rows

    def complaints(self) -> Iterator[str]:
        """Yield what does not hold."""
        for begun in self._provider.beginnings:
            yield from self._begun(begun)
        for emission in self._provider.emissions:
            yield from self._emitted(emission)
        for operation_id, row in self._rows.items():
            yield from self._settled(operation_id, *row)

    # ---- each send -------------------------------------------------------------------------------

    def _begun(self, begun: Beginning) -> Iterator[str]:
        """A body begins while its operation is armed under its own claim, and before a lease of that claim ends."""
        what = f"operation {begun.operation}: a body began under fence {begun.fence}"
        stands = begun.stands
        if begun.at - begun.checked_at > TURN:
            yield f"{what} without a check of the lease right before"
        if (stands.state, stands.fence) != ("armed", begun.fence) and not (self._overruled(begun) or self._answered_late(begun)):
            yield f"{what} while it was {stands.state or 'not recorded'} under fence {stands.fence}"
        if stands.state == "armed" and begun.wall > self._lease_end(begun):
            yield f"{what} {begun.wall - self._lease_end(begun)} µs after the lease that it was armed under"

    def _emitted(self, emission: Emission) -> Iterator[str]:
        """A send leaves in time, unless its process stood still since the check."""
        begun, late = emission.begun, emission.wall - self._lease_end(emission.begun)
        if begun.stands.state == "armed" and late > TURN and not self._frozen(emission):
            yield f"operation {begun.operation} was sent {late} µs after its lease by a process that had not stood still"

    def _lease_end(self, begun: Beginning) -> int:
        return begun.stands.may_leave_until - TIMEOUT

    def _frozen(self, emission: Emission) -> bool:
        """Return whether nothing could keep the send from leaving late: its process stood still between the check and the send."""
        return emission.begun.process.stood_still(emission.begun.checked_at, emission.at)

    def _excused(self, emission: Emission) -> bool:
        """Return whether the send left when it could no longer be waited for, and nobody can keep it from that."""
        late = emission.wall > self._lease_end(emission.begun)
        return (late and self._frozen(emission)) or self._jumped_after(emission) > MARGIN

    def _overruled(self, begun: Beginning) -> bool:
        """Return whether somebody else has ended the claim a moment ago: the worker hears of it with its next renewal."""
        died = begun.process.declared_dead_at
        moments = [at for at, shift in self._world.clock_sets if shift > 0] + ([died] if died is not None else [])
        return any(0 <= begun.at - at <= LEASE for at in moments)

    def _answered_late(self, begun: Beginning) -> bool:
        """Return whether an earlier send, late itself, was heard to be applied in just that moment."""
        earlier = [each for each in self._provider.effects(begun.operation) if each.at <= begun.at]
        return begun.stands.state == "confirmed" and any(self._excused(each) for each in earlier)

    def _jumped_after(self, emission: Emission) -> int:
        """Return by how much the wall clock was set forward while "not found" could not be believed yet."""
        until = emission.at + LEASE + TIMEOUT + SETTLE
        return sum(max(shift, 0) for at, shift in self._world.clock_sets if emission.begun.checked_at - LEASE <= at <= until)

    # ---- each operation --------------------------------------------------------------------------

    def _settled(self, operation_id: str, name: str, state: str, body: bytes | None, sends: int) -> Iterator[str]:
        what, effects = f"operation {operation_id} ({name}, {sends} sends)", self._provider.effects(operation_id)
        counted = [each for each in effects if not self._excused(each)]
        if state not in SETTLED:
            yield f"{what} is still {state} long after all faults ended"
        if len(counted) > 1:
            yield f"{what} has {len(counted)} effects that nothing excuses, of {[(each.at, each.begun.process.name) for each in effects]}"
        if state == "confirmed" and not effects:
            yield f"{what} is confirmed and has no effect"
        if state in UNAPPLIED and counted:
            yield f"{what} is {state} and the provider has applied it"
        if body and state == "confirmed" and effects and json.loads(body) != effects[0].label:
            yield f"{what}: recorded {body!r}, the provider applied {effects[0].label!r}"
        if len(effects) > 1 and OPERATIONS[name].spec.idempotent and OPERATIONS[name].spec.key_lifetime is None:
            yield f"{what} has {len(effects)} effects under one key"
