"""A completed step never runs again because the transition of its neighbour was refused, broken or cut off by a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import romulus
from romulus import Retry
from romulus.core.machine import Change
from romulus.core.record import Entry, Record
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected
from romulus.worker import Worker
from romulus.worker.salvage import outcomes_alone
from romulus.worker.takeup import parse_armed
from tests.worker.rig import World, eventually, world

ONCE = Retry(max_attempts=1)
CALLS: list[tuple[str, int]] = []
ENDED: list[str] = []
GATES: dict[str, asyncio.Event] = {}
MENDED: list[bool] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    for kept in (CALLS, ENDED, MENDED):
        kept.clear()
    GATES.clear()
    GATES.update({name: asyncio.Event() for name in ("a", "b", "c", "d", "store", "sent")})


class Between:
    """Stands between a worker and its store: what it is told to refuse is not written, and each commit waits while the gate is shut."""

    def __init__(self, worker: Worker, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Transition], bool]) -> None:
        self.write, self.answer, self.waits = worker.store.apply, answer, 0
        self.error: Exception | None = None
        self.refused: list[Transition] = []
        monkeypatch.setattr(worker.store, "apply", self.apply)

    async def apply(self, transitions: Sequence[Transition]) -> Sequence[Verdict]:
        if any(t.entries for t in transitions):
            self.waits += 1
            await GATES["store"].wait()
        chosen = [t for t in transitions if self.answer(t)]
        self.refused += chosen
        if chosen and self.error is not None:
            raise self.error
        return [Verdict.REFUSED for _ in chosen] if chosen else await self.write(transitions)


def never(_: Transition) -> bool:
    return False


async def begun(*names: str) -> None:
    await eventually(lambda: set(names) <= {name for name, _ in CALLS})


async def ends(between: Between, *names: str) -> None:
    """Let bodies end: the first one's transition waits at the store, the others queue behind it."""
    for name in names:
        GATES[name].set()
        await eventually(lambda name=name: name in ENDED and between.waits > 0)  # type: ignore[misc]
    await asyncio.sleep(0)  # their callbacks


async def taken_together(worker: Worker, *names: str) -> None:
    """Let bodies end in this order and be delivered in one turn, as those are that end while attempts are being begun."""
    (driver,) = worker.memory.active.values()
    driver.starting = True
    for count, name in enumerate(names, 1):
        GATES[name].set()
        await eventually(lambda count=count: len(driver.queue) == count)  # type: ignore[misc]
    driver.starting = False
    worker.host.call_soon(driver.turn)


async def _body(name: str) -> str:
    CALLS.append((name, romulus.current_attempt().number))
    await GATES[name].wait()
    ENDED.append(name)
    return name


@romulus.step(retry=ONCE)
async def a() -> str:
    return await _body("a")


@romulus.step(retry=ONCE)
async def b() -> str:
    return await _body("b")


@romulus.step(retry=ONCE)
async def d() -> str:
    return await _body("d")


@romulus.step(retry=Retry(max_attempts=2, initial=0.01))
async def c() -> str:
    await _body("c")
    raise ValueError("c")


@romulus.workflow
async def both() -> list[str]:
    return list(await asyncio.gather(a(), b()))


@romulus.workflow
async def first_of_two() -> str:
    """Gives the other up, and goes on when told to."""
    beside = asyncio.ensure_future(d())
    done, left = await asyncio.wait([asyncio.ensure_future(a()), asyncio.ensure_future(b())], return_when=asyncio.FIRST_COMPLETED)
    for each in left:
        each.cancel()
    await beside
    event = await romulus.wait_for_event("go", correlation_id="c", type=str)
    return f"{done.pop().result()} {len(left)} {event.payload}"


@romulus.workflow
async def beside_a_failing_one() -> str:
    results = await asyncio.gather(a(), c(), return_exceptions=True)
    return " ".join(map(str, results))


@romulus.workflow
async def fails_twice() -> str:
    try:
        return await c()
    except ValueError:
        return "failed"


@romulus.workflow
async def hangs_after_a() -> str:
    async def broken() -> str:
        result = await a()
        while not MENDED:
            pass
        return result

    return " ".join(await asyncio.gather(broken(), b()))


@romulus.workflow
async def gives_up_and_hangs() -> str:
    async def races() -> str:
        done, left = await asyncio.wait([asyncio.ensure_future(a()), asyncio.ensure_future(b())], return_when=asyncio.FIRST_COMPLETED)
        for each in left:
            each.cancel()
        return done.pop().result()

    async def broken() -> str:
        result = await d()
        while not MENDED:
            pass
        return result

    return " ".join(await asyncio.gather(races(), broken()))


@romulus.step(transaction=True, retry=ONCE)
async def books() -> str:
    return await _body("b")


@romulus.workflow
async def hangs_after_a_booking() -> str:
    async def broken() -> str:
        result = await a() + await books()
        while not MENDED:
            pass
        return result

    return " ".join(await asyncio.gather(broken(), c2()))


@romulus.workflow
async def goes_on() -> str:
    return await a() + await b()


@romulus.workflow
async def refused_io() -> str:
    async def breaks() -> str:
        result = await a()
        if not MENDED:
            await asyncio.get_running_loop().run_in_executor(None, int)
        return result

    return " ".join(await asyncio.gather(breaks(), c2()))


@romulus.step(retry=Retry(max_attempts=3, initial=0.01))
async def c2() -> str:
    CALLS.append(("c", romulus.current_attempt().number))
    if romulus.current_attempt().number == 1:
        raise ValueError("once")
    await GATES["c"].wait()
    return "c"


def once_a_transition_has_entries() -> Callable[[Transition], bool]:
    told: list[int] = []

    def answer(transition: Transition) -> bool:
        if transition.entries and not told:
            told.append(transition.id)
        return transition.id in told

    return answer


async def test_every_outcome_in_hand_is_saved_when_a_transition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, both) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        handle = await w.client.start(both)
        await begun("a", "b")
        await ends(between, "a", "b")
        GATES["store"].set()

        assert await handle.result(timeout=20) == ["a", "b"]
        assert len(between.refused) == 1
    assert sorted(CALLS) == [("a", 1), ("b", 1)]


async def test_an_outcome_that_another_one_made_the_code_give_up_is_left_out_at_every_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, first_of_two) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        handle = await w.client.start(first_of_two.options(id="r"))
        await begun("a", "b", "d")
        await ends(between, "d", "a", "b")
        GATES["store"].set()
        await w.until("r", "waiting")
        await w.stop(worker)
        await w.worker()  # rebuilds it from the record
        await w.client.send_event("go", "on", correlation_id="c")

        assert await handle.result(timeout=20) == "a 1 on"
        assert [(e.name, e.position) for e in await handle.history() if e.kind == "step"] == [("d", 0), ("a", 1), ("b", 2)]
    assert sorted(CALLS) == [("a", 1), ("b", 1), ("d", 1)]


async def test_a_failure_in_hand_counts_as_one_when_a_transition_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, beside_a_failing_one) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        handle = await w.client.start(beside_a_failing_one)
        await begun("a", "c")
        await ends(between, "a", "c")
        GATES["store"].set()

        assert await handle.result(timeout=20) == "a c"
    assert sorted(CALLS) == [("a", 1), ("c", 1), ("c", 2)]


async def test_an_outcome_refused_again_because_the_run_was_written_to_is_saved_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, both) as w:
        worker = await w.worker()
        refused: list[int] = []

        def answer(transition: Transition) -> bool:
            if transition.entries and len(refused) < 2:
                refused.append(transition.id)
                return True
            return False

        between = Between(worker, monkeypatch, answer)
        handle = await w.client.start(both)
        await begun("a", "b")
        await ends(between, "a", "b")
        GATES["store"].set()

        assert await handle.result(timeout=20) == ["a", "b"]
        assert len(between.refused) == 2
    assert sorted(CALLS) == [("a", 1), ("b", 1)]


async def test_an_outcome_behind_an_advance_that_hangs_is_saved_with_the_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, hangs_after_a) as w:
        worker = await w.worker(activation_limit=200_000)
        handle = await w.client.start(hangs_after_a.options(id="r"))
        await begun("a", "b")
        await taken_together(worker, "a", "b")
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "did not give control back" in held.hold_reason
        assert w.rows("SELECT armed FROM runs") == [("",)]

        MENDED.append(True)
        await handle.release()
        assert await handle.result(timeout=20) == "a b"
    assert sorted(CALLS) == [("a", 1), ("b", 1)]


async def test_the_outcome_of_an_attempt_that_the_code_gave_up_is_not_saved_with_the_hold(tmp_path: Path) -> None:
    async with world(tmp_path, gives_up_and_hangs) as w:
        worker = await w.worker(activation_limit=200_000)
        handle = await w.client.start(gives_up_and_hangs.options(id="r"))
        await begun("a", "b", "d")
        await taken_together(worker, "a", "d", "b")
        await w.until("r", "held")

        MENDED.append(True)
        await handle.release()
        assert await handle.result(timeout=20) == "a d"
        assert [entry.name for entry in await handle.history()] == ["a", "d"]


async def test_an_outcome_that_comes_during_a_transactional_step_is_saved_with_the_hold(tmp_path: Path) -> None:
    async with world(tmp_path, hangs_after_a_booking) as w:
        worker = await w.worker(activation_limit=200_000)
        handle = await w.client.start(hangs_after_a_booking.options(id="r"))
        await eventually(lambda: ("c", 2) in CALLS)
        GATES["a"].set()
        await begun("b")
        (driver,) = worker.memory.active.values()
        GATES["c"].set()
        await eventually(lambda: len(driver.queue) == 1)
        GATES["b"].set()
        await w.until("r", "held")
        record = await worker.store.record("default", "r")
        assert record is not None
        assert (record.run.armed, record.attempts) == ("", [])

        MENDED.append(True)
        await handle.release()
        assert await handle.result(timeout=20) == "ab c"
    assert [number for name, number in CALLS if name == "c"] == [1, 2]


async def test_a_failure_recorded_by_a_refused_park_counts_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, fails_twice) as w:
        worker = await w.worker()
        refused: list[int] = []

        def answer(transition: Transition) -> bool:
            if transition.change is Change.PARK and not refused:
                refused.append(transition.id)
                return True
            return False

        Between(worker, monkeypatch, answer)
        GATES["store"].set()
        GATES["c"].set()
        assert await (await w.client.start(fails_twice)).result(timeout=20) == "failed"
        assert refused
    assert CALLS == [("c", 1), ("c", 2)]


async def test_only_the_outcome_of_the_attempt_that_the_record_lists_is_saved(tmp_path: Path) -> None:
    async with world(tmp_path, both) as w:
        worker = await w.worker()
        await w.client.start(both.options(id="r"))
        await begun("a", "b")
        record = await worker.store.record("default", "r")
        assert record is not None
        armed = parse_armed(record.run.armed)[0]
        entry = Entry(0, "step", armed.seq, armed.name, armed.number, 1, False, b"1", bytes.fromhex(armed.digest))

        assert outcomes_alone(worker.engine, [entry], record) is not None
        assert outcomes_alone(worker.engine, [entry._replace(attempt=2)], record) is None
        assert outcomes_alone(worker.engine, [entry._replace(digest=b"other")], record) is None


async def test_an_outcome_that_waits_for_a_commit_is_saved_by_a_worker_that_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, both) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, never)
        handle = await w.client.start(both)
        await begun("a", "b")
        await ends(between, "a", "b")
        stopping = asyncio.ensure_future(w.stop(worker, grace=60_000_000))
        await eventually(lambda: worker.stopping)
        GATES["store"].set()
        await stopping
        await w.worker()

        assert await handle.result(timeout=20) == ["a", "b"]
    assert sorted(CALLS) == [("a", 1), ("b", 1)]


async def test_a_transition_refused_while_the_worker_stops_costs_no_outcome_and_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, both) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, once_a_transition_has_entries())
        handle = await w.client.start(both)
        await begun("a", "b")
        await ends(between, "a", "b")
        reclaim = worker.store.reclaim

        async def slow(run: int, owner: str, fence: int) -> Record | None:
            for _ in range(1_000):
                await asyncio.sleep(0)
            return await reclaim(run, owner, fence)

        monkeypatch.setattr(worker.store, "reclaim", slow)
        stopping = asyncio.ensure_future(w.stop(worker))
        await eventually(lambda: worker.stopping)
        GATES["store"].set()
        await stopping
        assert w.rows("SELECT status, losses, position, armed FROM runs") == [("pending", 0, 2, "")]

        await w.worker()
        assert await handle.result(timeout=20) == ["a", "b"]
    assert sorted(CALLS) == [("a", 1), ("b", 1)]


async def test_an_attempt_armed_by_what_could_not_be_committed_has_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, goes_on) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, lambda t: bool(t.entries) and t.change is Change.ADVANCE)
        between.error = BatchRejected("a defect")
        handle = await w.client.start(goes_on.options(id="r"))
        await begun("a")
        await ends(between, "a")
        GATES["store"].set()
        GATES["b"].set()
        await w.until("r", "held")
        assert w.rows("SELECT armed FROM runs") == [("",)]

        monkeypatch.undo()
        await handle.release()
        assert await handle.result(timeout=20) == "ab"  # with one attempt: one that may have begun would hold the run
    assert CALLS == [("a", 1), ("b", 1)]


async def test_an_outcome_that_cannot_be_recorded_at_all_counts_as_a_lost_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path, beside_a_failing_one) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, lambda t: bool(t.entries))
        between.error = BatchRejected("a defect")
        handle = await w.client.start(beside_a_failing_one.options(id="r"))
        await begun("a", "c")
        await ends(between, "a")
        GATES["store"].set()
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "cannot be committed: a defect; mend the cause, then `romulus runs release`" in held.hold_reason
        monkeypatch.undo()

        await handle.release()
        again = await w.until("r", "held")  # its one attempt may have done its work: nobody tries it again unasked
        assert again.hold_reason is not None
        assert "attempt 1 of step 'a' was lost" in again.hold_reason
    assert CALLS.count(("a", 1)) == 1


async def test_a_failed_attempt_keeps_its_number_when_what_followed_cannot_be_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, fails_twice) as w:
        worker = await w.worker()
        between = Between(worker, monkeypatch, lambda t: t.change is Change.PARK)
        between.error = BatchRejected("a defect")
        handle = await w.client.start(fails_twice.options(id="r"))
        GATES["c"].set()
        await w.until("r", "held")
        monkeypatch.undo()

        await handle.release()
        assert await handle.result(timeout=20) == "failed"
    assert CALLS == [("c", 1), ("c", 2)]


async def test_a_run_held_for_refused_io_keeps_the_numbers_of_what_ran_beside_it(tmp_path: Path) -> None:
    async with world(tmp_path, refused_io) as w:
        await w.worker()
        handle = await w.client.start(refused_io.options(id="r"))
        await eventually(lambda: ("c", 2) in CALLS)
        GATES["a"].set()
        held = await w.until("r", "held")
        assert held.hold_reason is not None
        assert "deploy the mended code" in held.hold_reason

        MENDED.append(True)
        GATES["c"].set()
        await handle.release()
        assert await handle.result(timeout=20) == "a c"
    assert [number for name, number in CALLS if name == "c"] == [1, 2, 3]


@romulus.operation(timeout=60)
async def writes(op: romulus.Operation) -> str:
    CALLS.append(("sent", op.attempt))
    await GATES["sent"].wait()
    ENDED.append("sent")
    return "written"


@romulus.workflow
async def hangs_beside_a_write() -> str:
    async def broken() -> str:
        result = await a()
        while not MENDED:
            pass
        return result

    return " ".join(await asyncio.gather(broken(), writes()))


async def test_the_answer_to_a_send_that_waits_behind_an_advance_that_hangs_is_reported(tmp_path: Path) -> None:
    async with world(tmp_path, hangs_beside_a_write) as w:
        worker = await w.worker(activation_limit=200_000)
        handle = await w.client.start(hangs_beside_a_write.options(id="r"))
        await begun("a", "sent")
        await taken_together(worker, "a", "sent")
        await w.until("r", "held")
        await _state_is(w, "confirmed")

        MENDED.append(True)
        await handle.release()
        assert await handle.result(timeout=20) == "a written"
    assert CALLS.count(("sent", 1)) == 1


async def _state_is(w: World, state: str) -> None:
    while [str(each.state) for each in await w.client.operations()] != [state]:
        await asyncio.sleep(0.01)
