"""Group commit: what one commit holds, and who is told what when a statement of it is at fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, cast

import pytest

from romulus.core.machine import Change, RunStatus
from romulus.core.record import Entry
from romulus.core.transition import Transition, Verdict
from romulus.host import RealHost
from romulus.store.contract import BatchRejected, Store
from romulus.worker import WorkerSettings
from romulus.worker.committer import Committer

AT_FAULT, A_DEFECT = 3, 5  # IDs of transitions


class Batches:
    """A store that notes what it is handed, and raises where a transition is at fault."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.locked: set[int] = set()  # what another transaction holds

    async def apply(self, transitions: Sequence[Transition]) -> list[Verdict]:
        ids = [t.id for t in transitions]
        self.seen.append(ids)
        if AT_FAULT in ids:
            raise BatchRejected("a lone surrogate")
        if A_DEFECT in ids:
            raise RuntimeError("a defect")
        return [Verdict.LOCKED if number in self.locked else Verdict.APPLIED for number in ids]


def transition(number: int, size: int = 1) -> Transition:
    entry = Entry(0, "step", 1, "s", 1, 1, False, b"x" * size, b"")
    return Transition(number, number, 1, f"r{number}", "w", 1, 1, Change.ADVANCE, RunStatus.RUNNING, 1, "", [entry])


class Desk:
    """A committer with its store, and the answers that came."""

    def __init__(self, host: RealHost) -> None:
        self.host, self.store = host, Batches()
        self.answers: dict[int, Any] = {}

    async def commit(self, *transitions: Transition, **settings: int) -> None:
        committer = Committer(self.host, cast("Store", self.store), WorkerSettings(**settings))
        for each in transitions:
            committer.submit(each, partial(self.answers.__setitem__, each.id))
        committer.start()
        await committer.drained()
        await asyncio.sleep(0)  # answers come in callbacks
        await committer.stop()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    host = RealHost()
    yield Desk(host)
    host.close()


async def test_a_transition_at_fault_is_found_by_halving_and_its_neighbours_are_written(desk: Desk) -> None:
    await desk.commit(*[transition(number) for number in (1, 2, AT_FAULT, 4)])
    assert desk.store.seen == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]
    assert isinstance(desk.answers.pop(AT_FAULT), BatchRejected)
    assert desk.answers == {1: Verdict.APPLIED, 2: Verdict.APPLIED, 4: Verdict.APPLIED}


async def test_whatever_the_store_raises_is_answered_and_its_neighbours_are_written(desk: Desk) -> None:
    await desk.commit(transition(A_DEFECT), transition(6))
    assert "a defect" in str(desk.answers[A_DEFECT])
    assert desk.answers[6] is Verdict.APPLIED


async def test_one_commit_holds_so_many_transitions_and_no_more(desk: Desk) -> None:
    await desk.commit(*[transition(number) for number in range(10, 15)], batch_max=2)
    assert desk.store.seen == [[10, 11], [12, 13], [14]]


async def test_one_commit_holds_so_many_bytes_and_the_transition_that_goes_past_them(desk: Desk) -> None:
    await desk.commit(*[transition(number, size=60) for number in range(10, 15)], batch_bytes_max=100)
    assert desk.store.seen == [[10, 11], [12, 13], [14]]


async def test_what_needs_locked_rows_is_set_aside_and_the_others_go_on(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.store.locked = {2}
    committer = Committer(desk.host, cast("Store", desk.store), WorkerSettings())
    for number in (1, 2):
        committer.submit(transition(number), partial(desk.answers.__setitem__, number))
    committer.start()
    drained = asyncio.ensure_future(committer.drained())
    for number in (4, 6):
        while len(desk.answers) < number // 2 - 1:
            await asyncio.sleep(0.001)
        committer.submit(transition(number), partial(desk.answers.__setitem__, number))
    while "wait for rows that another transaction holds" not in caplog.text:
        await asyncio.sleep(0.01)
    assert desk.answers == dict.fromkeys((1, 4, 6), Verdict.APPLIED)
    assert (committer.backlog, drained.done()) == (1, False)

    desk.store.locked = set()
    await drained
    await asyncio.sleep(0)
    assert desk.answers[2] is Verdict.APPLIED
    assert desk.store.seen[-1] == [2]
    await committer.stop()


async def test_what_is_set_aside_is_forgotten_by_a_stop(desk: Desk) -> None:
    desk.store.locked = {1}
    committer = Committer(desk.host, cast("Store", desk.store), WorkerSettings())
    committer.submit(transition(1), partial(desk.answers.__setitem__, 1))
    committer.start()
    while not desk.store.seen:
        await asyncio.sleep(0.001)
    await committer.stop()
    assert desk.answers == {}
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("romulus-committer")] == []
