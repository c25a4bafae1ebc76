"""Children: started with their parent's transition, told of in its inbox, closed with it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any, ClassVar

import pytest

import romulus
from romulus import blocking
from romulus.core.errors import IllegalTransition
from tests.worker.gates import CALLS, GATE, fresh, gated
from tests.worker.rig import World, eventually, world

clear = fresh
ENDED = ("succeeded", "failed", "cancelled", "terminated")


class Broke(Exception): ...


@romulus.step
async def doubled(n: int) -> int:
    return 2 * n


@romulus.workflow
async def double(n: int) -> int:
    return await doubled(n)


@romulus.workflow
async def breaks(n: int) -> int:
    raise Broke(f"at {n}")


@romulus.workflow
async def waits(name: str) -> str:
    return (await romulus.wait_for_event(name, correlation_id="all", type=str)).payload


@romulus.workflow
def double_sync(n: int) -> int:
    return 2 * n


async def child_is(here: World, run_id: str, status: str) -> None:
    """Wait until a run that may not exist yet has a status."""
    await eventually(lambda: here.rows("SELECT status FROM runs WHERE id = ?", run_id) == [(status,)])


async def test_a_call_of_a_workflow_runs_a_child_and_returns_its_result(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent(n: int) -> tuple[int, int]:
        return await double(n), await double_sync.aio(n)

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent.options(id="p"), 21)

        assert await handle.result() == (42, 42)
        children = [run for run in await here.client.runs() if run.id != "p"]
        assert {run.workflow: run.status for run in children} == {"double": "succeeded", "double_sync": "succeeded"}
        assert all(run.id.startswith("p~") for run in children)
        assert [entry.kind for entry in await handle.history()] == ["child", "child"]
    assert here.rows("SELECT count(*) FROM inbox") == [(0,)]


async def test_a_failed_child_raises_child_failed_with_its_cause(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> str:
        try:
            await breaks.options(id="broken")(3)
        except romulus.ChildFailed as error:
            assert isinstance(error.__cause__, Broke)
            return f"{error.run_id} {error.status}: {error.__cause__}"
        return "nothing"

    @romulus.workflow
    async def passes_on() -> None:
        await breaks(4)

    async with world(tmp_path, parent, passes_on) as here:
        await here.worker()

        assert await (await here.client.start(parent)).result() == "broken failed: at 3"
        with pytest.raises(romulus.RunFailed) as failed:
            await (await here.client.start(passes_on)).result()
        assert isinstance(failed.value.__cause__, romulus.ChildFailed)
        assert failed.value.__cause__.status == "failed"
        assert isinstance(failed.value.__cause__.__cause__, Broke)


async def test_a_child_started_for_a_handle_is_stored_when_the_handle_is_there(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> list[Any]:
        chosen = await romulus.start(waits.options(id="chosen"), "a")
        made = await romulus.start(double, 4)
        return [chosen.id, made.id, await made, await made.result(), await chosen.result()]

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent.options(id="p"))
        await child_is(here, "chosen", "waiting")
        await here.client.send_event("a", "done", correlation_id="all")
        chosen, made, *outcomes = await handle.result()

        assert chosen == "chosen"
        assert made.startswith("p~")
        assert outcomes == [8, 8, "done"]
        assert [entry.kind for entry in await handle.history()] == ["started", "started", "child", "child"]


async def test_a_def_workflow_starts_calls_and_maps_children(tmp_path: Path) -> None:
    @romulus.workflow
    def parent(n: int) -> list[Any]:
        handle = blocking.start(double, n)
        return [double_sync(n), double.blocking(n), blocking.call(double, n), blocking.map(double, [n, n + 1]), handle.result()]

    async with world(tmp_path, parent) as here:
        await here.worker()

        assert await (await here.client.start(parent, 2)).result() == [4, 4, 4, [4, 6], 4]


async def test_a_fan_out_consumes_many_outcomes_per_transition(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent(n: int) -> int:
        return sum(await asyncio.gather(*(double(i) for i in range(n))))

    async with world(tmp_path, parent) as here:
        await here.worker(turn_children_max=100)
        handle = await here.client.start(parent.options(id="p"), 300)

        assert await handle.result() == 300 * 299
        assert (await handle.describe()).position == 300
        transitions = "SELECT count(DISTINCT j.transition) FROM journal j JOIN runs r ON r.generation_key = j.generation WHERE r.id = 'p'"
        assert here.rows(transitions)[0][0] < 100


async def test_a_parent_taken_over_knows_its_children_again(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> list[str]:
        handle = await romulus.start(waits, "a")
        return [await handle, await waits("b"), handle.id]

    async with world(tmp_path, parent) as here:
        first = await here.worker()
        handle = await here.client.start(parent.options(id="p"))
        await eventually(lambda: here.rows("SELECT count(*) FROM waits")[0][0] == 1)
        await here.until("p", "waiting")
        await here.kill(first)
        second = await here.worker(cache_max=0)
        await here.client.send_event("a", "1", correlation_id="all")
        await eventually(lambda: here.rows("SELECT name FROM waits") == [("b",)])
        await here.until("p", "waiting")
        await here.kill(second)
        await here.worker()
        await here.client.send_event("b", "2", correlation_id="all")

        one, two, run_id = await handle.result()
        assert (one, two) == ("1", "2")
        runs = [run.id for run in await here.client.runs(workflow="waits")]
        assert len(runs) == 2
        assert run_id in runs


async def test_a_chosen_id_that_is_taken_is_a_conflict_raised_where_the_child_is_started(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent(n: int) -> list[str]:
        caught = []
        for begin in (romulus.start(double.options(id="taken"), n), double.options(id="taken")(n)):
            try:
                await begin
            except romulus.RunConflict as error:
                caught.append(str(error))
        return caught

    async with world(tmp_path, parent, double) as here:
        await here.worker()
        other = await here.client.start(double.options(id="taken"), 1)
        caught = await (await here.client.start(parent, 2)).result()

        assert len(caught) == 2
        assert all("'taken' already exists with other arguments" in each for each in caught)
        assert await other.result() == 2
        assert len(await here.client.runs(workflow="double")) == 1


@pytest.mark.parametrize("first", ["awaited", "handle"])
async def test_a_conflict_is_heard_by_a_run_that_is_rebuilt_before_it_is_told(tmp_path: Path, first: str) -> None:
    @romulus.workflow
    async def parent(n: int) -> list[str]:
        caught = []
        await gated("before")
        for how in (first, "awaited", "handle"):
            child = double.options(id="taken")
            try:
                await (child(n) if how == "awaited" else romulus.start(child, n))
            except romulus.RunConflict as error:
                await asyncio.sleep(0.001)
                caught.append(error.run_id)
        return caught

    async with world(tmp_path, parent, double) as here:
        killed = await here.worker()
        await (await here.client.start(double.options(id="taken"), 1)).result()
        handle = await here.client.start(parent.options(id="p"), 2)
        await eventually(lambda: CALLS == ["before"])
        await killed.claimer.stop()  # so that it asks for the child, parks and hears no answer
        GATE.set()
        await eventually(lambda: here.rows("SELECT about FROM inbox") == [("conflict",)])
        await here.kill(killed)
        await here.worker(cache_max=0)  # rebuilds the run each time it has parked

        assert await handle.result(raise_on_hold=True) == ["taken"] * 3
        assert len(await here.client.runs(workflow="double")) == 1


async def test_an_unknown_child_workflow_fails_with_the_remedy(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> str:
        try:
            return str(await double.options(version="9")(1))
        except romulus.UnknownWorkflow as error:
            return str(error)

    async with world(tmp_path, parent) as here:
        await here.worker()

        assert "no workflow 'double' version '9' here" in await (await here.client.start(parent)).result()


async def test_children_of_children_are_bounded_with_a_clear_error(tmp_path: Path) -> None:
    async with world(tmp_path, endless) as here:
        await here.worker()
        handle = await here.client.start(endless, 0)

        assert await handle.result() == 50
        assert len(await here.client.runs()) == 51


@romulus.workflow
async def bottomless(level: int) -> int:
    return await bottomless(level + 1)


async def test_a_failure_far_below_is_named_in_the_line_of_the_run_at_the_top(tmp_path: Path) -> None:
    async with world(tmp_path, bottomless) as here:
        await here.worker()
        await here.client.start(bottomless.options(id="top"), 0)
        failed = await here.until("top", "failed")

        runs = {each.id: each for each in await here.client.runs(limit=60)}
        assert len(runs) == 51
        lowest = next(each for each in runs.values() if str(each.error).startswith("TooDeep: "))
        assert f" failed: below it, in {lowest.id!r}: TooDeep: run {lowest.id!r} has 50 parents above it" in str(failed.error)


@romulus.workflow
async def endless(level: int) -> int:
    try:
        return await endless(level + 1)
    except romulus.TooDeep:
        return level


@pytest.mark.parametrize(("policy", "status"), [("cancel", "cancelled"), ("terminate", "terminated"), ("abandon", "waiting")])
async def test_the_end_of_a_parent_closes_its_children_as_they_were_started_to_be(tmp_path: Path, policy: Any, status: str) -> None:
    @romulus.workflow
    async def parent() -> str:
        handle = await romulus.start(waits.options(parent_close=policy), "never")
        await romulus.wait_for_event("go")
        return handle.id

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent.options(id="p"))
        await eventually(lambda: len(here.rows("SELECT 1 FROM waits")) == 2)
        await handle.send_event("go")
        child = await handle.result()

        await child_is(here, child, status)
        await eventually(lambda: here.rows("SELECT count(*) FROM to_close") == [(0,)])
        assert (await here.client.get(child).describe()).status == status


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_no_child_lives_on_after_its_parent_was_stopped(tmp_path: Path, how: str) -> None:
    @romulus.workflow
    async def parent() -> list[str]:
        return await asyncio.gather(*(waits("never") for _ in range(20)))

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent)
        await eventually(lambda: len(here.rows("SELECT 1 FROM waits")) == 20)
        await getattr(handle, how)("enough")
        await eventually(lambda: all(status in ENDED for (status,) in here.rows("SELECT status FROM runs")))

        assert {run.status for run in await here.client.runs(workflow="waits")} == {"cancelled"}


async def test_a_run_shows_its_live_children_and_what_became_of_the_others(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> None:
        await asyncio.gather(double(3), waits.options(id="c")("never"), return_exceptions=True)

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent)
        await child_is(here, "c", "waiting")
        await eventually(lambda: here.rows("SELECT position FROM runs WHERE workflow = 'parent'") == [(1,)])
        pending = (await handle.describe()).pending
        assert [(command.kind, command.name, command.state) for command in pending] == [("child", "c", "waiting")]
        await here.client.get("c").cancel()
        await handle.result()

        first, second = await handle.history()
        assert (first.kind, first.name, first.value, first.error, first.event_id) == ("child", "double", 6, None, None)
        assert (second.child_id, second.error) == ("c", "CancelledError")
        assert (await handle.describe()).pending == ()


async def test_a_child_whose_await_is_given_up_is_cancelled_and_one_with_a_handle_is_not(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> str:
        handle = await romulus.start(waits, "a")
        for awaited in (waits.options(id="given-up")("b"), handle.result()):
            try:
                await asyncio.wait_for(awaited, 0.01)
            except TimeoutError:
                continue
        return await handle

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent)
        await child_is(here, "given-up", "cancelled")
        await here.client.send_event("a", "kept", correlation_id="all")

        assert await handle.result() == "kept"


async def test_a_handle_cancels_its_child(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> str:
        handle = await romulus.start(waits.options(id="c"), "never")
        await handle.cancel("not needed")
        try:
            return await handle.result()
        except romulus.ChildFailed as error:
            return error.status

    async with world(tmp_path, parent) as here:
        await here.worker()
        handle = await here.client.start(parent)

        assert await handle.result() == "cancelled"
        assert (await here.client.get("c").describe()).cancel_reason == "not needed"
        assert [entry.kind for entry in await handle.history()] == ["started", "cancel_child", "child"]


async def test_a_detached_child_started_as_the_last_act_always_runs(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> str:
        return (await romulus.start(double.options(parent_close="abandon"), 1)).id

    async with world(tmp_path, parent) as here:
        worker = await here.worker()
        handles = [await here.client.start(parent) for _ in range(30)]
        await handles[0].result()
        await here.kill(worker)
        await here.worker()
        for handle in handles:
            child = await handle.result()
            assert await here.client.get(child).result() == 2
        await eventually(lambda: here.rows("SELECT count(*) FROM inbox") == [(0,)])  # at once, or by the next sweep


async def test_the_next_generation_takes_over_a_child_started_alike_and_gets_its_outcome(tmp_path: Path) -> None:
    async with world(tmp_path, generations, waits) as here:
        await here.worker()
        handle = await here.client.start(generations, 1)
        await child_is(here, "kept", "waiting")
        await here.client.send_event("a", "1", correlation_id="all")

        assert await handle.result() == "1"
        assert len(await here.client.runs(workflow="waits")) == 1


@romulus.workflow
async def generations(left: int) -> str:
    handle = await romulus.start(waits.options(id="kept", parent_close="abandon"), "a")
    if left:
        romulus.continue_as_new(generations, left - 1)
    return await handle


@pytest.mark.parametrize("busy", [False, True])
async def test_a_live_child_is_closed_when_its_parent_continues_as_new_whatever_the_workers_have_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    async with world(tmp_path, goes_on, waits) as here:
        worker = await here.worker()
        close, taken_over = worker.store.close_children, asyncio.Event()

        async def closed_late(limit: int, decide: Any) -> int:
            return await close(limit, decide) if taken_over.is_set() else 0

        if busy:
            monkeypatch.setattr(worker.store, "close_children", closed_late)
        handle = await here.client.start(goes_on.options(id="p"), 1)
        if busy:
            await eventually(lambda: here.rows("SELECT count(*) FROM journal WHERE kind = 'started'") == [(2,)])
            taken_over.set()

        assert await handle.result() == "cancelled"
        assert (await here.client.get("kept").describe()).status == "cancelled"


@romulus.workflow
async def goes_on(left: int) -> str:
    handle = await romulus.start(waits.options(id="kept"), "never")
    if left:
        romulus.continue_as_new(goes_on, left - 1)
    try:
        return await handle
    except romulus.ChildFailed as error:
        return error.status


async def test_a_child_that_its_parent_had_cancelled_and_a_person_has_retried_ends_with_its_parent(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent() -> None:
        handle = await romulus.start(waits.options(id="c"), "never")
        await handle.cancel("not needed")
        with contextlib.suppress(romulus.ChildFailed):
            await handle
        await romulus.wait_for_event("end")

    async with world(tmp_path, parent) as here:
        await here.worker(cache_max=0)
        handle = await here.client.start(parent)
        child = here.client.get("c")
        await child_is(here, "c", "cancelled")
        await eventually(lambda: here.rows("SELECT name FROM waits") == [("end",)])
        await child.retry()
        await child_is(here, "c", "waiting")
        await handle.cancel("enough")

        await child_is(here, "c", "cancelled")
        assert (await child.describe()).cancel_reason == "its parent has ended"


async def test_a_child_that_a_person_has_retried_lives_on_though_its_parent_is_rebuilt(tmp_path: Path) -> None:
    Fuse.broken, Fuse.calls = True, []

    @romulus.workflow
    async def child() -> str:
        await fused("begun")
        return await waits("go")

    @romulus.workflow
    async def parent() -> str:
        with contextlib.suppress(romulus.ChildFailed):
            await child.options(id="c")()
        await romulus.wait_for_event("look")
        await romulus.wait_for_event("end")
        return "ended"

    async with world(tmp_path, parent, child, steps=[fused]) as here:
        await here.worker(cache_max=0)
        handle = await here.client.start(parent)
        await child_is(here, "c", "failed")
        Fuse.broken = False
        await here.client.get("c").retry()
        await child_is(here, "c", "waiting")
        await handle.send_event("look")  # rebuilt with a child that lives and that it does not await
        await eventually(lambda: ("end",) in here.rows("SELECT name FROM waits"))
        await eventually(lambda: here.rows("SELECT count(*) FROM to_close") == [(0,)])

        assert (await here.client.get("c").describe()).cancel_requests == 0


async def test_a_retried_parent_goes_on_with_the_children_it_had_started(tmp_path: Path) -> None:
    calls = 0

    @romulus.step(retry=romulus.Retry(max_attempts=1))
    async def flaky() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Broke

    @romulus.workflow
    async def parent() -> list[str]:
        handle = await romulus.start(waits.options(parent_close="abandon"), "a")
        await flaky()
        return [handle.id, await handle]

    async with world(tmp_path, parent, steps=[flaky]) as here:
        await here.worker()
        handle = await here.client.start(parent)
        await here.until(handle.id, "failed")
        await handle.retry()
        await here.until(handle.id, "waiting")
        await here.client.send_event("a", "1", correlation_id="all")

        run_id, outcome = await handle.result()
        assert outcome == "1"
        assert [run.id for run in await here.client.runs(workflow="waits")] == [run_id]


class Fuse:
    """A step that fails until it is mended."""

    broken = True
    calls: ClassVar[list[str]] = []


@romulus.step(retry=romulus.Retry(max_attempts=1))
async def fused(what: str) -> str:
    Fuse.calls.append(what)
    if Fuse.broken and what != "paid":
        raise Broke(what)
    return what


@romulus.workflow
async def pays(n: int) -> int:
    await fused("paid")
    await fused("sent")
    return n


@romulus.workflow
async def has_a_child(how: str) -> int:
    if how == "handle":
        return await (await romulus.start(pays, 7))
    if how == "chosen handle":
        return await (await romulus.start(pays.options(id="its-child"), 7))
    return await (pays.options(id="its-child") if how == "chosen" else pays)(7)


@pytest.mark.parametrize("how", ["handle", "chosen handle", "chosen", "made"])
async def test_a_retried_parent_begins_a_child_again_that_had_failed(tmp_path: Path, how: str) -> None:
    Fuse.broken, Fuse.calls = True, []
    async with world(tmp_path, has_a_child, pays, steps=[fused]) as here:
        await here.worker(cache_max=0)  # rebuilt before it hears who has the ID
        handle = await here.client.start(has_a_child, how)
        await here.until(handle.id, "failed")
        Fuse.broken = False
        await handle.retry()

        assert await handle.result() == 7
        paid = Fuse.calls.count("paid")
        assert paid == (2 if how == "made" else 1)  # a new child, or the same: what it had paid for is not paid again


async def test_a_retry_goes_down_to_the_grandchild_that_failed(tmp_path: Path) -> None:
    Fuse.broken, Fuse.calls = True, []

    @romulus.workflow
    async def top() -> int:
        return await has_a_child.options(id="middle")("chosen")

    async with world(tmp_path, top, has_a_child, pays, steps=[fused]) as here:
        await here.worker()
        handle = await here.client.start(top)
        await here.until(handle.id, "failed")
        Fuse.broken = False
        await handle.retry()

        assert await handle.result() == 7
        assert Fuse.calls == ["paid", "sent", "sent"]


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_a_parent_retried_after_it_was_stopped_goes_on_with_the_children_that_were_stopped_with_it(tmp_path: Path, how: str) -> None:
    @romulus.workflow
    async def parent() -> str:
        return await (await romulus.start(waits, "a"))

    async with world(tmp_path, parent, waits) as here:
        await here.worker()
        handle = await here.client.start(parent)
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        await getattr(handle, how)()
        await eventually(lambda: all(status in ENDED for (status,) in here.rows("SELECT status FROM runs")))
        await handle.retry()
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        await here.client.send_event("a", "on", correlation_id="all")

        assert await handle.result() == "on"
        assert len(await here.client.runs(workflow="waits")) == 1


class Mop:
    """Clean-up that takes until the test lets it end."""

    ready: asyncio.Event


@romulus.step
async def mop() -> None:
    await Mop.ready.wait()


@romulus.workflow
async def cleans_up() -> str:
    try:
        return (await romulus.wait_for_event("a", type=str, correlation_id="all")).payload
    except asyncio.CancelledError:
        await mop()
        raise


@romulus.workflow
async def has_one_to_clean_up(how: str) -> str:
    if how == "handle":
        return await (await romulus.start(cleans_up))
    return await (cleans_up.options(id="its-child") if how == "chosen" else cleans_up)()


@pytest.mark.parametrize("how", ["handle", "chosen"])
async def test_a_parent_is_not_retried_while_a_child_that_it_would_go_on_with_still_cleans_up(tmp_path: Path, how: str) -> None:
    Mop.ready = asyncio.Event()
    async with world(tmp_path, has_one_to_clean_up, cleans_up) as here:
        await here.worker()
        handle = await here.client.start(has_one_to_clean_up, how)
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        (child,) = await here.client.runs(workflow="cleans_up")
        await handle.cancel()
        await here.until(handle.id, "cancelled")

        with pytest.raises(IllegalTransition, match=f"until its child '{child.id}' has ended"):
            await handle.retry()
        assert (await handle.describe()).generation == 1
        Mop.ready.set()
        await here.until(child.id, "cancelled")
        await handle.retry()
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        await here.client.send_event("a", "on", correlation_id="all")

        assert await handle.result() == "on"
        assert [run.id for run in await here.client.runs(workflow="cleans_up")] == [child.id]


async def test_a_child_that_cleans_up_does_not_keep_a_parent_from_a_retry_that_starts_another(tmp_path: Path) -> None:
    Mop.ready = asyncio.Event()
    async with world(tmp_path, has_one_to_clean_up, cleans_up) as here:
        await here.worker()
        handle = await here.client.start(has_one_to_clean_up, "made")
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        await handle.cancel()
        await here.until(handle.id, "cancelled")
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(0,)])
        await handle.retry()
        await eventually(lambda: here.rows("SELECT count(*) FROM waits") == [(1,)])
        await here.client.send_event("a", "on", correlation_id="all")

        assert await handle.result() == "on"
        assert len(await here.client.runs(workflow="cleans_up")) == 2
        Mop.ready.set()


async def test_a_child_that_failed_stays_failed_for_a_run_that_continues_as_new(tmp_path: Path) -> None:
    async with world(tmp_path, keeps_on, breaks) as here:
        await here.worker()

        assert await (await here.client.start(keeps_on, 1)).result() == "failed"
        (child,) = await here.client.runs(workflow="breaks")
        assert len(here.rows("SELECT 1 FROM generations g JOIN runs r ON r.key = g.run WHERE r.id = ?", child.id)) == 1


@romulus.workflow
async def keeps_on(left: int) -> str:
    try:
        await breaks.options(id="broken", parent_close="abandon")(1)
    except romulus.ChildFailed as error:
        if left:
            romulus.continue_as_new(keeps_on, left - 1)
        return error.status
    return "none"


async def test_parents_awaiting_children_hold_no_slot(tmp_path: Path) -> None:
    @romulus.workflow
    async def parent(n: int) -> int:
        return await double(n)

    async with world(tmp_path, parent) as here:
        await here.worker(concurrency=1, runs_max=1)
        handles = [await here.client.start(parent, n) for n in range(4)]

        assert [await handle.result() for handle in handles] == [0, 2, 4, 6]


async def test_a_chosen_id_in_the_reserved_namespace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are made for children and forks"):
        double.options(id="p~1")
    async with world(tmp_path, double) as here:
        with pytest.raises(ValueError, match="are made for children and forks"):
            await here.client.start_by_name("double", {"n": 1}, id="p~1")


def test_a_workflow_called_outside_a_run_says_what_to_write() -> None:
    with pytest.raises(romulus.NotInRun, match="app.run"):
        double(1)
