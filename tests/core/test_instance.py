"""One generation in memory: entries in, commands out, and one end."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from romulus.core.commands import Cancelled, Continued, Failed, Returned, StepCall, TimerCall
from romulus.core.errors import Mismatch, Undecodable, WaitTimeout
from romulus.core.failures import dump_failure, load_failure
from romulus.core.instance import Instance, current
from romulus.core.record import ALONE, Entry, Kind
from romulus.core.seeds import Seeds
from romulus.core.values import Vault
from tests.core.rig import SEEDS, START, Rig, replay, step, wait


@step
def pay(cents: int) -> int:
    return cents


@step
def refund(cents: int) -> int:
    return -cents


@step
def broken(cents: int) -> int:
    raise ValueError(f"no {cents}")


def running() -> Instance:
    instance = current()
    assert instance is not None
    return instance


def returned(rig: Rig) -> bytes:
    assert isinstance(rig.instance.outcome, Returned), rig.instance.outcome
    return rig.instance.outcome.body


def failed(rig: Rig) -> Failed:
    assert isinstance(rig.instance.outcome, Failed), rig.instance.outcome
    return rig.instance.outcome


async def one_payment() -> int:
    return await pay(5)


# ---- commands ---------------------------------------------------------------------------------------


def test_a_call_is_numbered_when_it_is_first_awaited_not_when_it_is_made() -> None:
    async def late() -> int:
        first, second = pay(1), refund(2)
        return int(await second + await first)

    rig = Rig(late).run()

    assert [line.split()[1:4] for line in rig.trace if line.startswith("issue")] == [["1", "step", "refund"], ["2", "step", "pay"]]


def test_a_call_that_is_never_awaited_asks_for_nothing_and_warns() -> None:
    async def forgetful() -> int:
        pay(1)
        return await pay(2)

    with pytest.warns(RuntimeWarning, match="step 'pay' was called and never awaited"):
        rig = Rig(forgetful).run()

    assert [entry.seq for entry in rig.journal] == [1]


def test_a_call_is_a_coroutine_to_asyncio_and_can_be_awaited_once() -> None:
    async def twice() -> int:
        call = pay(1)
        assert asyncio.iscoroutine(call)
        await call
        with pytest.raises(RuntimeError, match="already awaited"):
            await call
        return await asyncio.create_task(pay(3))

    assert returned(Rig(twice).run()) == b"3"


def test_a_command_has_its_own_copy_of_the_callers_context() -> None:
    from contextvars import ContextVar

    who = ContextVar("who", default="nobody")

    async def tagged() -> int:
        who.set("ada")
        return await pay(1)

    rig = Rig(tagged).start()

    detail = rig.seq(1).detail
    assert isinstance(detail, StepCall)
    assert detail.context.run(who.get) == "ada"
    assert who.get() == "nobody"


def test_code_begins_in_an_empty_context() -> None:
    from contextvars import ContextVar, copy_context

    outside = ContextVar[str]("outside")
    outside.set("seen")

    async def lonely() -> int:
        return len(copy_context())

    assert returned(Rig(lonely).run()) == b"0"


def test_arguments_that_do_not_fit_raise_in_the_code_and_ask_for_nothing() -> None:
    async def wrong() -> str:
        try:
            await pay("a", 2)
        except TypeError:
            return "refused"
        return "paid"

    rig = Rig(wrong).start()

    assert returned(rig) == b'"refused"'
    assert rig.instance.seq == 0


def test_a_cancelled_branch_withdraws_what_was_taken_and_forgets_what_was_not() -> None:
    async def branches() -> int:
        task = asyncio.create_task(pay(1))
        await refund(2)
        task.cancel()
        early = asyncio.create_task(pay(3))
        await asyncio.sleep(0)
        early.cancel()
        return await refund(4)

    rig = Rig(branches).start()
    rig.settle(rig.seq(1))

    assert "withdraw 2" in rig.trace
    assert rig.names() == ["refund"]
    assert not any(line.startswith("issue 3") for line in rig.trace)


# ---- timers and time -----------------------------------------------------------------------------------


def test_a_sleep_is_a_timer_due_at_the_microsecond_and_ends_only_through_its_entry() -> None:
    async def sleepy() -> float:
        await asyncio.sleep(1.25)
        return asyncio.get_running_loop().time()

    rig = Rig(sleepy).start()
    detail = rig.seq(1).detail

    assert isinstance(detail, TimerCall)
    assert detail.due == START + 1_250_000
    assert rig.instance.outcome is None
    rig.settle(rig.seq(1))
    assert returned(rig) == b"1.25"


def test_time_is_the_last_entrys() -> None:
    async def clock() -> list[float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await pay(1)
        return [before, loop.time()]

    assert returned(Rig(clock).run()) == b"[0.0,0.001]"


@pytest.mark.parametrize("delay", [0, -1, 1e-9])
def test_a_sleep_of_no_time_is_no_command(delay: float) -> None:
    async def awake() -> None:
        await asyncio.sleep(delay)

    assert Rig(awake).start().instance.seq == 0


@pytest.mark.parametrize("delay", [float("inf"), 4e10])
def test_a_timer_needs_a_finite_time(delay: float) -> None:
    async def forever() -> None:
        await asyncio.sleep(delay)

    error = load_failure(failed(Rig(forever).start()).body)
    assert isinstance(error, ValueError)
    assert "thousand years" in str(error)


def test_a_timeout_that_did_not_pass_is_withdrawn() -> None:
    async def quick() -> int:
        async with asyncio.timeout(10):
            await pay(1)
        return await pay(2)

    rig = Rig(quick).start()
    assert sorted(rig.names()) == ["pay", "timer"]
    rig.settle(next(c for c in rig.instance.open.values() if c.name == "pay"))

    assert "withdraw 1" in rig.trace
    assert rig.names() == ["pay"]


def test_call_at_and_call_later_are_commands_too() -> None:
    async def raw() -> list[float]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        handle = loop.call_at(7, future.set_result, None)
        loop.call_later(1, lambda: None).cancel()
        await future
        return [handle.when(), loop.time()]

    rig = Rig(raw).run()

    assert returned(rig) == b"[7.0,7.0]"
    assert rig.trace[0].startswith("issue 1 timer")
    assert rig.trace[1].startswith("deliver timer 1")


# ---- events ----------------------------------------------------------------------------------------------


def test_a_wait_gives_the_event_or_its_timeout() -> None:
    async def waits() -> list[Any]:
        arrival = await wait("packed", int)
        try:
            await wait("sent", int, timeout=5)
        except TimeoutError as error:
            assert isinstance(error, WaitTimeout)
            return [arrival.payload, arrival.id, arrival.name, arrival.correlation_id, str(error)]
        return []

    rig = Rig(waits)
    rig.events = {"packed": 4}

    assert returned(rig.run()) == b'[4,"evt-1","packed","run-1","no event \'sent\' came in time"]'


# ---- failures and where they came from ----------------------------------------------------------------------


def test_a_failure_that_ends_the_run_names_the_entry_it_came_from() -> None:
    async def fails() -> int:
        await pay(1)
        return await broken(2)

    assert failed(Rig(fails).run()).ended_by == 1


def test_a_failure_is_traced_through_cause_context_and_groups() -> None:
    async def caused() -> None:
        try:
            await broken(1)
        except ValueError as error:
            raise KeyError("wrapped") from error

    async def in_context() -> None:
        try:
            await broken(1)
        except ValueError:
            raise KeyError("while handling")  # noqa: B904

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(broken(1))

    for fn in (caused, in_context, grouped):
        assert failed(Rig(fn).run()).ended_by == 0


def test_a_failure_of_the_codes_own_came_from_no_entry() -> None:
    async def own() -> None:
        with suppress(ValueError):
            await broken(1)
        raise ValueError("no 1")

    assert failed(Rig(own).run()).ended_by is None


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration, asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_that_asyncio_would_take_as_its_own_arrives_as_a_failure_of_the_step(kind: type[BaseException]) -> None:
    async def careful() -> str:
        try:
            await pay(1)
        except Exception as error:
            return type(error).__name__
        return "paid"

    rig = Rig(careful).start()
    entry = rig.entry(rig.seq(1))._replace(failed=True, body=dump_failure(kind("odd")))
    rig.deliver(entry)

    assert returned(rig) == b'"StepFailed"'


def test_a_frozen_exception_keeps_its_origin() -> None:
    rig = Rig(frozen_fails).run()

    assert failed(rig).ended_by == 0


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


@step
def freeze() -> int:
    raise Frozen(3)


async def frozen_fails() -> int:
    return await freeze()


def test_code_that_calls_exit_fails_the_run_only() -> None:
    async def exits() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())

    async def leave() -> None:
        await pay(1)
        sys.exit(3)

    assert isinstance(load_failure(failed(Rig(exits).run()).body), BaseException)


def test_a_result_that_cannot_be_stored_fails_the_run() -> None:
    async def odd() -> int:
        return object()  # type: ignore[return-value]

    assert "odd" in str(load_failure(failed(Rig(odd).run()).body))


# ---- mismatches -------------------------------------------------------------------------------------------


def test_a_mismatch_says_what_is_recorded_and_what_the_code_asks_for() -> None:
    async def changed() -> int:
        return await refund(5)

    rig = Rig(one_payment).run()

    with pytest.raises(Mismatch, match=r"position 0: recorded step 'pay' \(command 1\), the code asks for step 'refund' \(command 1\)"):
        replay(rig, changed)


def test_other_arguments_are_a_mismatch() -> None:
    async def dearer() -> int:
        return await pay(6)

    with pytest.raises(Mismatch, match="with other arguments"):
        replay(Rig(one_payment).run(), dearer)


def test_another_time_is_a_mismatch() -> None:
    async def sleeps(seconds: int) -> None:
        await asyncio.sleep(seconds)

    async def sleeps_longer(seconds: int) -> None:
        await asyncio.sleep(seconds + 1)

    with pytest.raises(Mismatch, match=r"recorded a timer \(command 1\), the code asks for a timer for another time"):
        replay(Rig(sleeps, 1).run(), sleeps_longer, 1)


def test_code_that_ends_or_waits_before_the_record_does_is_a_mismatch() -> None:
    async def two() -> int:
        return int(await pay(5) + await pay(6))

    async def concurrent() -> int:
        return int(sum(await asyncio.gather(pay(5), pay(6))))

    rig = Rig(two).run()
    with pytest.raises(Mismatch, match="position 1.*nothing: it has ended"):
        replay(rig, one_payment)
    swapped = Rig(concurrent, choose=lambda commands: commands[-1]).run()
    with pytest.raises(Mismatch, match="it has asked for 1 commands and awaits step 'pay'"):
        replay(swapped, two)


def test_a_mismatch_delivers_nothing_and_the_right_entry_still_fits() -> None:
    rig = Rig(one_payment).start()
    entry = rig.entry(rig.seq(1))

    with pytest.raises(Mismatch):
        rig.instance.deliver(entry._replace(digest=b"otherwis"), replaying=False)

    assert rig.instance.position == 0
    rig.deliver(entry)
    assert returned(rig) == b"5"


def test_an_entry_out_of_turn_is_the_callers_error() -> None:
    rig = Rig(one_payment).start()

    with pytest.raises(ValueError, match="does not follow"):
        rig.instance.deliver(rig.entry(rig.seq(1))._replace(position=7), replaying=False)


def test_an_outcome_that_does_not_fit_the_code_is_undecodable_and_delivers_nothing() -> None:
    rig = Rig(one_payment).start()
    entry = rig.entry(rig.seq(1))

    with pytest.raises(Undecodable):
        rig.instance.deliver(entry._replace(body=b'"five"'), replaying=False)

    assert rig.names() == ["pay"]
    rig.deliver(entry)
    assert returned(rig) == b"5"


def test_a_codec_that_cannot_open_is_undecodable() -> None:
    class Locked:
        def encode(self, data: bytes) -> bytes:
            return data

        def decode(self, data: bytes) -> bytes:
            raise OSError("no key")

    rig = Rig(one_payment, vault=Vault(Locked(), 1000)).start()

    with pytest.raises(Undecodable):
        rig.settle(rig.seq(1))


def test_a_value_that_was_decoded_already_is_not_decoded_again() -> None:
    rig = Rig(one_payment).start()

    rig.instance.deliver(rig.entry(rig.seq(1))._replace(body=b"unreadable"), replaying=False, value=8)

    assert returned(rig) == b"8"


# ---- cancel, patches, continue as new ------------------------------------------------------------------------


def test_a_delivered_cancel_ends_the_run_cancelled_after_its_clean_up() -> None:
    async def cleans_up() -> None:
        try:
            await pay(1)
        finally:
            await refund(1)

    rig = Rig(cleans_up).start()
    rig.cancel()
    assert rig.names() == ["refund"]
    assert "withdraw 1" in rig.trace
    rig.settle(rig.seq(2))

    assert isinstance(rig.instance.outcome, Cancelled)
    assert replay(rig, cleans_up).trace[-1] == f"end {rig.instance.outcome}"


def test_code_may_refuse_a_cancel_and_a_cancel_of_its_own_is_a_failure() -> None:
    async def refuses() -> int:
        try:
            await pay(1)
        except asyncio.CancelledError:
            return 7
        return 0

    async def cancels_itself() -> None:
        raise asyncio.CancelledError("mine")

    rig = Rig(refuses).start()
    rig.cancel()

    assert returned(rig) == b"7"
    assert failed(Rig(cancels_itself).run()).ended_by is None


async def patchy() -> list[bool]:
    first = running().patched("a")
    await pay(1)
    second = running().patched("b")
    await pay(2)
    return [first, second, running().patched("a"), running().patched("b")]


def test_patched_is_true_where_the_code_is_new_and_recorded_behind_the_entry() -> None:
    rig = Rig(patchy).run()

    assert [(entry.position, entry.kind, entry.name) for entry in rig.journal] == [
        (0, "patch", "a"), (1, "step", "pay"), (2, "patch", "b"), (3, "step", "pay"),
    ]  # fmt: skip
    assert returned(rig) == b"[true,true,true,true]"
    assert replay(rig, patchy).trace[-1] == rig.trace[-1]


def test_patched_is_false_where_the_old_code_ran_and_stays_so() -> None:
    async def before() -> list[bool]:
        await pay(1)
        await pay(2)
        return []

    rig = Rig(before).start()
    rig.settle(rig.seq(1))
    again = replay(rig, patchy)
    assert again.instance.take_patches() == []
    again.settle(again.seq(2))

    assert returned(again) == b"[false,false,false,false]"


def test_continue_as_new_ends_the_generation_also_from_a_task() -> None:
    async def at_once() -> None:
        running().continue_as_new("other", "2", b"{}")

    async def from_a_task() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(at_once())

    for fn in (at_once, from_a_task):
        assert Rig(fn).run().instance.outcome == Continued("other", "2", b"{}")


# ---- draws ---------------------------------------------------------------------------------------------------


async def draws() -> list[Any]:
    instance = running()
    rng = instance.rng()
    first = [rng.random(), str(instance.uuid4())]
    await pay(1)
    return [*first, rng.random(), str(instance.uuid4())]


def test_random_numbers_and_uuids_are_the_runs_own() -> None:
    rig = Rig(draws).run()

    assert replay(rig, draws).trace == rig.trace
    other = Rig(draws, seeds=Seeds.first("ff" * 16)).run()
    assert not set(returned(other)[1:-1].split(b",")) & set(returned(rig)[1:-1].split(b","))


def test_draws_after_a_copied_prefix_come_from_the_newer_seed() -> None:
    rig = Rig(draws).run()
    forked = replay(rig, draws, seeds=SEEDS.with_new(1, b"\1" * 16))

    before, after = returned(rig)[1:-1].split(b","), returned(forked)[1:-1].split(b",")
    assert before[:2] == after[:2]
    assert not set(before[2:]) & set(after[2:])


# ---- notes and the watchdog --------------------------------------------------------------------------------------


async def noting() -> None:
    running().note("before")
    await pay(1)
    running().note("after")


def test_notes_are_kept_once_and_not_on_a_replay() -> None:
    rig = Rig(noting).run()

    assert [line for line in rig.trace if line.startswith("note")] == ["note before", "note after"]
    assert not [line for line in replay(rig, noting).trace if line.startswith("note")]


def test_an_exception_that_nobody_takes_up_is_noted() -> None:
    async def careless() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await pay(1)

    assert "division by zero" in str([line for line in Rig(careless).run().trace if line.startswith("note")])


def test_what_nothing_can_wake_is_told_in_words() -> None:
    async def stuck() -> None:
        gate = asyncio.Event()
        await asyncio.gather(gate.wait(), asyncio.Queue[int]().get())

    rig = Rig(stuck).start()

    assert not rig.instance.open
    told = "\n".join(rig.instance.awaiting())
    assert "Task-1 awaits a future in test_what_nothing_can_wake_is_told_in_words.<locals>.stuck (test_instance.py:" in told
    assert "Event.wait" in told
    assert "Queue.get" in told


def test_cancelling_an_ended_run_is_a_mismatch() -> None:
    rig = Rig(one_payment).run()

    with pytest.raises(Mismatch, match="recorded a cancel.*it has ended"):
        rig.instance.deliver(Entry(1, Kind.CANCEL, 1, "", 0, rig.instance.now, False, b"", b""), replaying=False)


@pytest.mark.parametrize(("seq", "info"), [(1, ""), (2, ALONE)])
def test_only_an_outcome_recorded_alone_may_meet_code_that_asks_for_it_no_more(seq: int, info: str) -> None:
    async def gives_up() -> None:
        paying = asyncio.ensure_future(pay(1))
        await asyncio.sleep(0)
        paying.cancel()
        await asyncio.Event().wait()

    instance = Rig(gives_up).start().instance
    outcome = Entry(0, Kind.STEP, seq, "pay", 1, instance.now, False, b"1", b"", info)

    with pytest.raises(Mismatch):
        instance.deliver(outcome, replaying=True)
    instance.deliver(outcome._replace(seq=1, info=ALONE), replaying=True)
    assert instance.position == 1
