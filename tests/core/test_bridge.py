"""Sync workflows: the same loop, entries and rules, suspended by a greenlet."""

from __future__ import annotations

import asyncio
import gc
from contextvars import ContextVar
from typing import Any

import greenlet
import pytest

from romulus.core.commands import Cancelled, Failed, Returned
from romulus.core.errors import Dropped, Mismatch, WrongColour
from romulus.core.failures import load_failure
from romulus.core.instance import current
from tests.core.rig import Rig, make, replay, step, step_spec, wait


@step
def work(n: int) -> int:
    return n


@step
def broken(n: int) -> int:
    raise ValueError(f"no {n}")


def instance() -> Any:
    found = current()
    assert found is not None
    return found


def adds_up(n: int) -> int:
    total = sum(work(each) for each in range(n))
    instance().blocking(asyncio.sleep(5))
    try:
        broken(1)
    except ValueError:
        total += 100
    return total


def test_sync_code_makes_the_same_commands_as_async_code_and_replays() -> None:
    async def adds_up_async(n: int) -> int:
        total = 0
        for each in range(n):
            total += await work(each)
        await asyncio.sleep(5)
        try:
            await broken(1)
        except ValueError:
            total += 100
        return total

    rig = Rig(adds_up, 4).run()

    assert rig.trace == Rig(adds_up_async, 4).run().trace
    assert replay(rig, adds_up, 4).trace == rig.trace
    assert rig.instance.outcome == Returned(b"106")


def test_a_mismatch_and_the_ending_entry_are_told_for_sync_code_too() -> None:
    def changed(n: int) -> int:
        return work(7)

    def fails() -> int:
        return broken(work(1))

    rig = Rig(fails).run()

    assert isinstance(rig.instance.outcome, Failed)
    assert rig.instance.outcome.ended_by == 1
    with pytest.raises(Mismatch):
        replay(Rig(adds_up, 4).run(), changed, 4)


def test_sync_code_shares_its_tasks_context_with_the_steps_it_calls() -> None:
    who = ContextVar("who", default="nobody")

    def sets() -> str:
        who.set("ada")
        work(1)
        return who.get()

    rig = Rig(sets).start()
    detail: Any = rig.seq(1).detail
    assert detail.context.run(who.get) == "ada"
    rig.settle(rig.seq(1))

    assert rig.instance.outcome == Returned(b'"ada"')
    assert who.get() == "nobody"


def test_sync_code_waits_for_events_and_is_cancelled_like_async_code() -> None:
    def waits() -> int:
        try:
            return int(instance().blocking(wait("go", int)).payload)
        finally:
            work(9)

    rig = Rig(waits)
    rig.events = {"go": 4}
    assert rig.run().instance.outcome == Returned(b"4")
    cancelled = Rig(waits).start()
    cancelled.cancel()
    assert cancelled.names() == ["work"]
    cancelled.settle(cancelled.seq(2))
    assert isinstance(cancelled.instance.outcome, Cancelled)


def test_blocking_outside_sync_code_is_the_wrong_colour() -> None:
    async def blocks() -> str:
        try:
            instance().blocking(asyncio.Event().wait())
        except WrongColour:
            return "refused"
        return "blocked"

    def nested() -> str:
        async def inner() -> str:
            assert not instance().in_bridge()
            return "async"

        assert instance().in_bridge()
        return str(instance().blocking(inner()))

    def run_and_collect() -> Any:
        outcome = Rig(blocks).run().instance.outcome
        gc.collect()
        return outcome

    with pytest.warns(RuntimeWarning, match=r"Event\.wait.* was never awaited"):
        assert run_and_collect() == Returned(b'"refused"')
    assert Rig(nested).run().instance.outcome == Returned(b'"async"')


def test_sync_code_can_wait_for_several_things_at_once() -> None:
    spec = step_spec(work.__wrapped__)  # type: ignore[attr-defined]

    def several() -> list[int]:
        async def all_of() -> list[int]:
            return list(await asyncio.gather(*(instance().step(spec, (n,), {}) for n in range(3))))

        return list(instance().blocking(all_of()))

    rig = Rig(several).start()

    assert rig.names() == ["work"] * 3
    while rig.instance.outcome is None:
        rig.settle(rig.ready()[-1])
    assert rig.instance.outcome == Returned(b"[0,1,2]")


def test_an_instance_may_be_advanced_from_another_greenlet_than_the_one_that_began_it() -> None:
    rig = Rig(adds_up, 3)
    greenlet.greenlet(rig.start).switch()
    while rig.instance.outcome is None:
        greenlet.greenlet(rig.settle).switch(rig.ready()[0])

    assert rig.instance.outcome == Returned(b"103")


def test_a_dropped_sync_instance_unwinds_with_every_switch_refused(capfd: pytest.CaptureFixture[str]) -> None:
    ends: list[str] = []

    def waits() -> None:
        try:
            work(1)
        finally:
            for _ in range(2):
                try:
                    work(2)
                except Dropped:
                    ends.append("refused")

    rig = Rig(waits).start()
    rig.instance.close()
    del rig
    gc.collect()

    assert ends == ["refused", "refused"]
    assert capfd.readouterr().err == ""


def test_a_generator_collected_in_sync_code_does_not_switch() -> None:
    def yields() -> Any:
        try:
            yield 1
        finally:
            work(99)

    def drops() -> int:
        cycle: list[Any] = [yields()]
        next(cycle[0])
        cycle.append(cycle)
        del cycle
        gc.collect()
        return work(1)

    rig = Rig(drops).run()

    assert [entry.seq for entry in rig.journal] == [1]


def test_an_exception_of_sync_code_keeps_its_place() -> None:
    def fails() -> None:
        work(1)
        raise KeyError("mine")

    outcome = Rig(fails).run().instance.outcome
    assert isinstance(outcome, Failed)
    assert "in fails" in load_failure(outcome.body).romulus_traceback  # type: ignore[attr-defined]


def test_an_instance_that_never_began_has_no_bridge() -> None:
    assert not make(adds_up, 1).in_bridge()
