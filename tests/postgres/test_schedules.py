"""Every order of the statements of two or three connections: what was stored is matched, and what was deposited wakes its run.

docs/explanation/states.md says why; test_interleavings.py tells the races inside one statement as stories of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from romulus.core.transition import Closing, NewEvent
from romulus.store.postgres import PostgresStore
from tests.postgres.kit import settled
from tests.postgres.schedules import Act, Schedules, releases, schedules
from tests.postgres.server import Database
from tests.store.kit import (
    PENDING,
    SECOND,
    Ready,
    advance,
    again,
    claim,
    close,
    deposits,
    event,
    park,
    request,
    start,
    wait,
    worker,
)  # fmt: skip


class Tale:
    """What one schedule is about: a run, its wait and its event, which no other schedule meets."""

    def __init__(self, made: Schedules, number: int) -> None:
        self.made, self.id = made, f"s{number}"
        self.store = made.sides[0].store

    def call(self, awaitable: Any) -> Any:
        return self.made.sides[0].call(awaitable)

    def claimed(self, run_id: str) -> Any:
        self.call(start(self.store, run_id))
        return next(r for r in self.call(claim(self.store, "w1")).records if r.run.id == run_id)

    def opening(self, record: Any) -> Any:
        return advance(record, opens=[wait(correlation_id=self.id)])

    def event(self) -> Any:
        return event(self.id, correlation_id=self.id)

    def held_by(self, run_id: str) -> list[str | None]:
        return list(deposits(self.call(self.store.record("default", run_id))))

    def next_wait(self) -> list[str | None]:
        """What a later wait of another run is given."""
        record = self.claimed(f"{self.id}-next")
        self.call(self.store.apply([self.opening(record)]))
        self.call(settled(self.store))
        return self.held_by(record.run.id)

    def repaired(self) -> None:
        """What any worker that lives does once it has found another dead."""
        self.call(settled(self.store))
        self.store._forgotten.soon()
        self.call(self.store.sweep(100, PENDING))


@pytest.fixture
def played(database: Database) -> Any:
    """Run a tale in every order; then again with each of the *mortal* sides dying at each of its statements."""

    def play(tell: Callable[[Tale, bool], Any], sides: int, mortal: Sequence[int]) -> int:
        with schedules(database, sides) as made:
            first = made.sides[0]
            for owner in ("w1", "w2"):
                first.call(first.store.register(worker(first.host, owner), 3_600 * SECOND)).close()
            made.every(lambda number: tell(Tale(made, number), False))
            for side in mortal:
                for statement in range(1, made.stops[side] + 1):
                    made.every(lambda number: tell(Tale(made, number), True), (side, statement))
            return made.run

    return play


@pytest.fixture
def lock(database: Database) -> Any:
    """Hold what a statement locks, until the returned side lets it go."""

    def lock(sql: str, *values: Any) -> Act:
        connection = database.server.connect(database.name)
        connection.execute("BEGIN")
        assert len(connection.execute(sql, values).fetchall()) == 1  # type: ignore[arg-type]
        return releases(connection)

    return lock


def test_an_event_and_a_wait_find_each_other_in_every_order(played: Any) -> None:
    def tell(it: Tale, dies: bool) -> Any:
        record = it.claimed(it.id)

        async def opens(store: PostgresStore) -> None:
            await store.apply([it.opening(record)])
            await store.match(100)

        async def sends(store: PostgresStore) -> None:
            await store.send([it.event()])
            await store.match(100)

        def check() -> None:
            if dies:  # the one that died had no answer, and asks again
                it.call(it.store.send([it.event()]))
                if it.call(again(it.store, record)).run.revision == record.run.revision:
                    it.call(it.store.apply([it.opening(record)]))
                it.repaired()
            assert it.held_by(it.id) == [it.id]

        return [opens, sends], check

    assert played(tell, 2, mortal=(0, 1)) > 90


def waiting(it: Tale) -> Any:
    """A run with an open wait whose event is stored and not matched yet."""
    record = it.claimed(it.id)
    it.call(it.store.apply([it.opening(record)]))
    it.call(settled(it.store))
    it.call(it.store.send([it.event()]))
    return it.call(again(it.store, record))


@pytest.mark.parametrize("held", [True, False])
def test_a_deposit_wakes_a_run_that_parks_and_whose_owner_looks_at_its_wakes_in_every_order(played: Any, lock: Any, held: bool) -> None:
    def tell(it: Tale, dies: bool) -> Any:
        record = waiting(it)

        def check() -> None:
            if dies:
                it.repaired()
                if it.call(again(it.store, record)).run.revision == record.run.revision:
                    it.call(it.store.apply([park(record)]))
            found = [r for r in it.call(claim(it.store, "w2")).records if r.run.id == it.id]
            assert [deposits(r) for r in found] == [[it.id]]

        sides: list[Act] = [lambda store: store.apply([park(record)]), lambda store: store.match(100), lambda store: store.pulse("w1")]
        if held:  # the parking's snapshot is taken, then it waits
            sides.append(lock("SELECT 1 FROM romulus.runs WHERE id = %s FOR UPDATE", it.id))
        return sides, check

    assert played(tell, 4 if held else 3, mortal=() if held else (0, 1)) > 50


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("how", [Closing.WITHDRAWN, Closing.TIMED_OUT])
def test_an_event_whose_wait_is_closed_while_it_is_matched_goes_to_the_next_in_every_order(
    played: Any, lock: Any, how: Closing, held: bool
) -> None:
    def tell(it: Tale, dies: bool) -> Any:
        record = waiting(it)
        closing = advance(record, closes=[close(1, how)])

        async def closes(store: PostgresStore) -> None:
            await store.apply([closing])
            await store.match(100)

        def check() -> None:
            if dies:
                it.repaired()
                it.call(it.store.apply([closing]))
            assert it.next_wait() == [it.id]

        sides: list[Act] = [closes, lambda store: store.match(100)]
        if held:
            sides.append(lock("SELECT 1 FROM romulus.waits WHERE correlation_id = %s FOR UPDATE", it.id))
        return sides, check

    assert played(tell, 3 if held else 2, mortal=() if held else (0, 1)) > 20


class Told(list[Any]):
    """The records that a run's workers were given."""

    def __init__(self, it: Tale) -> None:
        super().__init__()
        self._it = it

    def claims(self, owner: str) -> Act:
        """Return what a worker does that looks for work."""

        async def act(store: PostgresStore) -> None:
            self.extend((await claim(store, owner, match_max=100)).records)

        return act

    def gives(self, owner: str, sent: NewEvent, *, looks: bool = True) -> Act:
        """Return what the process of a worker does that sends an event: it is given to its run there, or told of, and *looks*."""

        async def act(store: PostgresStore) -> None:
            ready = Ready(store, request(owner, match_max=100))
            try:
                await store.send([sent])
            finally:
                ready.end()
            self.extend(record for claims in ready.claims for record in claims.records)
            if looks and ready.pokes:
                await self.claims(owner)(store)

        return act

    def all(self) -> list[list[str | None]]:
        """Return the deposits that its run was told of in the end, one record after another."""
        it = self._it
        for owner in ("w1", "w2"):
            self.extend(it.call(claim(it.store, owner)).records)
            self.extend(it.call(it.store.pulse(owner)))
        return [list(deposits(record)) for record in self if record.run.id == it.id]


def test_an_event_is_told_to_the_one_of_two_workers_that_has_its_run_in_every_order(played: Any) -> None:
    def tell(it: Tale, dies: bool) -> Any:
        record = it.claimed(it.id)
        it.call(it.store.apply([park(record, opens=[wait(correlation_id=it.id)])]))
        it.call(settled(it.store))
        told = Told(it)

        async def sends(store: PostgresStore) -> None:
            await store.send([it.event()])
            await told.claims("w1")(store)

        def check() -> None:
            if dies:
                it.call(it.store.send([it.event()]))
                it.repaired()
            if not dies or it.call(it.store.run("default", it.id)).owner is None:
                assert told.all() == [[it.id]]

        return [sends, told.claims("w2")], check

    assert played(tell, 2, mortal=(0, 1)) > 40


def test_a_deposit_is_told_to_who_claims_a_run_that_parks_in_every_order(played: Any) -> None:
    """The claim matches it, the run's owner takes its wake or not, and the parking is seen or not."""

    def tell(it: Tale, dies: bool) -> Any:
        record = waiting(it)
        told = Told(it)

        def check() -> None:
            assert [it.id] in told.all()

        return [lambda store: store.apply([park(record)]), told.claims("w2"), lambda store: store.pulse("w1")], check

    assert played(tell, 3, mortal=()) > 50


def parked(it: Tale, **changes: Any) -> None:
    """Let the run wait for its event, parked and with nothing left to be done."""
    record = it.claimed(it.id)
    it.call(it.store.apply([park(record, opens=[wait(correlation_id=it.id)], **changes)]))
    it.call(settled(it.store))


def test_an_event_given_by_its_sender_is_told_to_one_of_two_workers_in_every_order(played: Any) -> None:
    def tell(it: Tale, dies: bool) -> Any:
        parked(it)
        told = Told(it)

        def check() -> None:
            if dies:
                it.call(it.store.send([it.event()]))
                it.repaired()
            if not dies or it.call(it.store.run("default", it.id)).owner is None:
                assert told.all() == [[it.id]]

        return [told.gives("w1", it.event()), told.claims("w2")], check

    assert played(tell, 2, mortal=(0, 1)) > 1


@pytest.mark.parametrize("held", [True, False])
def test_an_event_that_its_sender_would_give_is_told_to_a_run_that_parks_in_every_order(played: Any, lock: Any, held: bool) -> None:
    """*held*: the parking's snapshot is taken, then it waits; else the run's owner looks at its wakes."""

    def tell(it: Tale, dies: bool) -> Any:
        record = it.claimed(it.id)
        it.call(it.store.apply([it.opening(record)]))
        it.call(settled(it.store))
        record = it.call(again(it.store, record))
        told = Told(it)

        async def gives_and_matches(store: PostgresStore) -> None:
            await told.gives("w2", it.event(), looks=False)(store)
            await store.match(100)

        def check() -> None:
            assert [it.id] in told.all()

        others = lock("SELECT 1 FROM romulus.runs WHERE id = %s FOR UPDATE", it.id) if held else lambda store: store.pulse("w1")
        return [lambda store: store.apply([park(record)]), gives_and_matches, others], check

    assert played(tell, 3, mortal=()) > 50


@pytest.mark.parametrize("held", ["", "runs WHERE id", "waits WHERE correlation_id"])
@pytest.mark.parametrize("how", [Closing.WITHDRAWN, Closing.TIMED_OUT])
def test_an_event_is_given_to_a_wait_or_to_the_one_after_it_while_that_is_closed_in_every_order(
    played: Any, lock: Any, how: Closing, held: str
) -> None:
    """The run is due: another worker claims it, and closes its wait."""

    def tell(it: Tale, dies: bool) -> Any:
        parked(it, wake_at=1)
        given = Told(it)

        async def closes(store: PostgresStore) -> None:
            for record in (await claim(store, "w1")).records:
                await store.apply([park(record, closes=[close(1, how)])])

        def check() -> None:
            records = [record for record in given if record.run.id == it.id]
            if records:
                assert [(record.run.owner, deposits(record)) for record in records] == [("w2", [it.id])]
                assert it.held_by(it.id) == [it.id]
            else:  # another's hand on the row may have kept the wait from being closed
                assert [*it.next_wait(), *it.held_by(it.id)].count(it.id) == 1

        sides: list[Act] = [closes, given.gives("w2", it.event(), looks=False)]
        if held:
            sides.append(lock(f"SELECT 1 FROM romulus.{held} = %s FOR UPDATE", it.id))
        return sides, check

    assert played(tell, 3 if held else 2, mortal=()) > 1


@pytest.mark.parametrize("gives", [True, False])
def test_of_two_events_at_once_one_is_given_and_the_other_kept_in_every_order(played: Any, gives: bool) -> None:
    """The other one's sender gives it as well, or has it matched in the ordinary way."""

    def tell(it: Tale, dies: bool) -> Any:
        parked(it)
        first, second = (event(f"{it.id}{letter}", correlation_id=it.id) for letter in "ab")
        told = Told(it)

        async def sends(store: PostgresStore) -> None:
            await store.send([second])
            await told.claims("w2")(store)

        def check() -> None:
            (taken,) = told.all()
            assert it.next_wait() == [({first.event_id, second.event_id} - {str(taken[0])}).pop()]
            assert taken[0] in (first.event_id, second.event_id)

        return [told.gives("w1", first), told.gives("w2", second) if gives else sends], check

    assert played(tell, 2, mortal=()) > 1
