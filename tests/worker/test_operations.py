"""External operations on real stores: sent once, settled by lookup, key or a person, never repeated blindly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Applied, LookupResult, NotApplied, NotSent, Operation, Rejected, Retry, Unknown
from romulus.core.errors import IllegalTransition
from romulus.core.machine import RunStatus
from romulus.worker.operations import arming
from tests.worker.rig import World, eventually, world

QUICK = Retry(max_attempts=3, initial=0.01, jitter=0)


@dataclass
class Provider:
    """The outside: what it was sent, what it has applied, and how its answers get lost."""

    sends: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])  # (operation ID, attempt)
    applied: dict[str, int] = field(default_factory=dict[str, int])  # effects by operation ID
    behaviour: list[str] = field(default_factory=list[str])  # of the next sends; then "answer"
    lookups: list[Any] = field(default_factory=list[Any])  # answers of the next lookups; then the truth
    asked: int = 0
    keys: bool = True  # the same ID is applied once

    def send(self, op: Operation) -> str:
        self.sends.append((op.id, op.attempt))
        how = self.behaviour.pop(0) if self.behaviour else "answer"
        if how == "refuse":
            raise Rejected("no such customer")
        if how == "unreachable":
            raise NotSent("connection refused")
        if how == "lost before":
            raise TimeoutError("no answer")
        if not (self.keys and op.id in self.applied):
            self.applied[op.id] = self.applied.get(op.id, 0) + 1
        if how == "lost after":
            raise TimeoutError("no answer")
        return f"done {op.id[:4]}"

    def find(self, op: Operation) -> LookupResult[str]:
        self.asked += 1
        if self.lookups:
            answer = self.lookups.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]
        return Applied(f"found {op.id[:4]}") if op.id in self.applied else NotApplied()


provider = Provider()


@pytest.fixture(autouse=True)
def _fresh() -> None:
    provider.__init__()  # type: ignore[misc]


@romulus.operation(timeout=5, retry=QUICK, lookup_retry=QUICK)
async def looked_up(op: Operation, customer: str) -> str:
    await asyncio.sleep(0)
    return provider.send(op)


@looked_up.lookup
async def find(op: Operation, customer: str) -> LookupResult[str]:
    return provider.find(op)


@romulus.operation(timeout=5, idempotent=True, retry=QUICK)
async def keyed(op: Operation, customer: str) -> str:
    return provider.send(op)


@romulus.operation(timeout=5, retry=QUICK)
def blind(op: Operation, customer: str) -> str:
    return provider.send(op)


@romulus.operation(timeout=5, idempotent=True, retry=QUICK, lookup_retry=Retry(max_attempts=2, initial=0.01))
async def both(op: Operation, customer: str) -> str:
    return provider.send(op)


@both.lookup
def find_both(op: Operation, customer: str) -> LookupResult[str]:
    return provider.find(op)


WRITES: dict[str, Any] = {"lookup": looked_up, "key": keyed, "neither": blind, "both": both}


@romulus.workflow
async def update(ability: str) -> str:
    try:
        if ability == "neither":
            return await blind.aio("ada")
        return await {"lookup": looked_up, "key": keyed, "both": both}[ability]("ada")
    except (romulus.OperationRejected, romulus.OperationAbandoned, NotSent) as error:
        return f"{type(error).__name__}: {error}"


async def run(here: World, ability: str) -> str:
    handle = await here.client.start(update.options(id="u"), ability)
    return await handle.result(timeout=20)


@pytest.mark.parametrize("ability", WRITES)
async def test_an_operation_whose_answer_comes_is_sent_once(tmp_path: Path, ability: str) -> None:
    async with world(tmp_path, update) as here:
        await here.worker()
        assert (await run(here, ability)).startswith("done ")
        assert [len(provider.sends), *provider.applied.values()] == [1, 1]
        assert here.rows("SELECT state, sends, owner, due FROM operations") == [("confirmed", 1, None, None)]


@pytest.mark.parametrize("ability", WRITES)
async def test_a_refusal_is_raised_and_nothing_is_sent_again(tmp_path: Path, ability: str) -> None:
    provider.behaviour = ["refuse"]
    async with world(tmp_path, update) as here:
        await here.worker()
        assert await run(here, ability) == "OperationRejected: no such customer"
        assert len(provider.sends) == 1
        assert here.rows("SELECT state FROM operations") == [("rejected",)]


@pytest.mark.parametrize("ability", WRITES)
async def test_what_never_left_is_sent_again_under_the_same_id(tmp_path: Path, ability: str) -> None:
    provider.behaviour = ["unreachable", "unreachable"]
    async with world(tmp_path, update) as here:
        await here.worker()
        assert (await run(here, ability)).startswith("done ")
        assert len({operation for operation, _ in provider.sends}) == 1
        assert [attempt for _, attempt in provider.sends] == [1, 2, 3]
        assert list(provider.applied.values()) == [1]


async def test_what_never_leaves_ends_unsent_when_its_attempts_are_used_up(tmp_path: Path) -> None:
    provider.behaviour = ["unreachable"] * 3
    async with world(tmp_path, update) as here:
        await here.worker()
        assert await run(here, "neither") == "NotSent: connection refused"
        assert here.rows("SELECT state FROM operations") == [("not sent",)]


@pytest.mark.parametrize("ability", ["lookup", "both"])
async def test_a_lost_answer_is_looked_up(tmp_path: Path, ability: str) -> None:
    provider.behaviour = ["lost after"]
    async with world(tmp_path, update) as here:
        await here.worker()
        assert (await run(here, ability)).startswith("found ")
        assert [len(provider.sends), *provider.applied.values()] == [1, 1]


async def test_a_lost_answer_is_sent_again_under_its_key(tmp_path: Path) -> None:
    provider.behaviour = ["lost after"]
    async with world(tmp_path, update) as here:
        await here.worker()
        assert (await run(here, "key")).startswith("done ")
        assert [len(provider.sends), *provider.applied.values()] == [2, 1]


async def test_without_lookup_and_key_a_lost_answer_waits_for_a_person(tmp_path: Path) -> None:
    provider.behaviour = ["lost after"]
    async with world(tmp_path, update) as here:
        await here.worker()
        await here.client.start(update.options(id="u"), "neither")
        seen = await here.until("u", RunStatus.HELD)
        assert seen.hold_reason is not None
        assert "was sent once" in seen.hold_reason
        assert "resolve" in seen.hold_reason
        assert len(provider.sends) == 1


async def test_not_found_is_believed_only_when_every_send_must_have_left(tmp_path: Path) -> None:
    provider.behaviour = ["lost before"]
    async with world(tmp_path, update) as here:
        await here.worker()
        await here.client.start(update.options(id="u"), "lookup")
        await eventually(lambda: provider.asked == 1 and here.rows("SELECT due - may_leave_until FROM operations WHERE due > 0") == [(0,)])
        assert len(provider.sends) == 1
        with here.database() as database:  # the time has come
            database.execute("UPDATE operations SET may_leave_until = 1, first_sent_at = 1, due = 1")
        assert (await here.client.get("u", update).result(timeout=20)).startswith("done ")
        assert [attempt for _, attempt in provider.sends] == [1, 2]


UNANSWERED = [Unknown("starting up"), Unknown("starting up \x00\ud800"), Unknown("starting up" * 10**6), LookupError("down")]


@pytest.mark.parametrize("answer", UNANSWERED, ids=["words", "no text", "many words", "raised"])
async def test_a_lookup_without_an_answer_is_asked_again_and_then_a_person_is(tmp_path: Path, answer: Any) -> None:
    provider.behaviour, provider.lookups = ["lost after"], [answer] * 3
    async with world(tmp_path, update) as here:
        await here.worker()
        await here.client.start(update.options(id="u"), "lookup")
        seen = await here.until("u", RunStatus.HELD)
        assert provider.asked == 3
        said = "starting up" if isinstance(answer, Unknown) else "down"
        assert said in (seen.hold_reason or "")[:3_000]
        assert len(seen.hold_reason or "") < 3_000
        (operation,) = await here.client.operations()
        looks = [line for line in (await here.client.operation(operation.id)).history if line.kind == "lookup: unknown"]
        assert [said in line.detail["reason"] for line in looks] == [True] * 3


async def test_a_lookup_that_stays_silent_falls_back_to_the_key(tmp_path: Path) -> None:
    provider.behaviour, provider.lookups = ["lost after"], [Unknown()] * 2
    async with world(tmp_path, update) as here:
        await here.worker()
        assert (await run(here, "both")).startswith("done ")
        assert [len(provider.sends), *provider.applied.values()] == [2, 1]


@pytest.mark.parametrize("answer", [Applied(7), "yes", None])
async def test_a_lookup_of_the_wrong_type_holds_and_is_named(tmp_path: Path, answer: Any) -> None:
    provider.behaviour, provider.lookups = ["lost after"], [answer]
    async with world(tmp_path, update) as here:
        await here.worker()
        await here.client.start(update.options(id="u"), "lookup")
        seen = await here.until("u", RunStatus.HELD)
        assert type(getattr(answer, "value", answer)).__name__ in (seen.hold_reason or "")


class Rude(BaseException):
    """Not an Exception."""


@romulus.operation(timeout=5, retry=QUICK, lookup_retry=Retry(max_attempts=2, initial=0.01))
async def rudely_found(op: Operation, how: str) -> str:
    raise TimeoutError("no answer")


@rudely_found.lookup
async def find_rudely(op: Operation, how: str) -> LookupResult[str]:
    task = asyncio.current_task()
    assert task is not None
    if how == "cancels itself":
        task.cancel()
    await asyncio.sleep(0)
    raise {"cancelled": asyncio.CancelledError, "own": Rude, "sys.exit": SystemExit}[how]


@romulus.operation(timeout=5, retry=QUICK, lookup_retry=Retry(max_attempts=2, initial=0.01))
def found_rudely_in_a_thread(op: Operation, how: str) -> str:
    raise TimeoutError("no answer")


@found_rudely_in_a_thread.lookup
def find_rudely_in_a_thread(op: Operation, how: str) -> LookupResult[str]:
    raise {"cancelled": asyncio.CancelledError, "own": Rude, "sys.exit": SystemExit}[how]


@romulus.workflow
async def finds_rudely(how: str, in_a_thread: bool) -> str:
    return await (found_rudely_in_a_thread.aio(how) if in_a_thread else rudely_found(how))


@pytest.mark.parametrize(
    ("how", "in_a_thread", "raised"),
    [
        ("cancelled", False, "CancelledError"), ("own", False, "Rude"), ("sys.exit", False, "SystemExit"),
        ("cancels itself", False, "CancelledError"), ("cancelled", True, "CancelledError"), ("own", True, "Rude"),
        ("sys.exit", True, "SystemExit"),
    ],
)  # fmt: skip
async def test_a_lookup_may_raise_what_is_no_exception(tmp_path: Path, how: str, in_a_thread: bool, raised: str) -> None:
    async with world(tmp_path, finds_rudely) as here:
        await here.worker()
        await here.client.start(finds_rudely.options(id="u"), how, in_a_thread)
        held = await here.until("u", "held")
        assert f"its lookup raised {raised} (asked 2 times)" in str(held.hold_reason)


@pytest.mark.parametrize("ability", WRITES)
async def test_a_worker_killed_while_sending_leaves_one_unknown_operation_and_one_effect(tmp_path: Path, ability: str) -> None:
    async with world(tmp_path, slow) as here:
        first = await here.worker()
        await here.client.start(slow.options(id="s"), ability)
        await eventually(lambda: len(provider.sends) == 1)
        await here.kill(first)
        await here.worker()
        if ability == "neither":
            await here.until("s", RunStatus.HELD)
        else:
            result = await here.client.get("s", slow).result(timeout=20)
            assert result in {f"{how} {operation[:4]}" for operation in provider.applied for how in ("found", "done")}
        assert list(provider.applied.values()) == [1]


@romulus.operation(timeout=60, retry=QUICK)
async def hang_lookup(op: Operation) -> str:
    provider.send(op)
    await asyncio.Event().wait() if op.attempt == 1 else None
    return f"done {op.id[:4]}"


@hang_lookup.lookup
def find_hang(op: Operation) -> LookupResult[str]:
    return provider.find(op)


@romulus.operation(timeout=60, idempotent=True, retry=QUICK)
async def hang_key(op: Operation) -> str:
    provider.send(op)
    await asyncio.Event().wait() if op.attempt == 1 else None
    return f"done {op.id[:4]}"


@romulus.operation(timeout=60, retry=QUICK)
async def hang_blind(op: Operation) -> str:
    provider.send(op)
    await asyncio.Event().wait()
    return ""


@romulus.workflow
async def slow(ability: str) -> str:
    if ability in ("lookup", "both"):
        return await hang_lookup()
    return await (hang_key() if ability == "key" else hang_blind())


@romulus.workflow
async def many(count: int) -> int:
    return len(await asyncio.gather(*(hang_lookup() for _ in range(count))))


async def test_of_many_queued_operations_a_kill_makes_only_the_armed_ones_unknown(tmp_path: Path) -> None:
    async with world(tmp_path, many) as here:
        worker = await here.worker(concurrency=3)
        await here.client.start(many.options(id="m"), 50)
        await eventually(lambda: len(provider.sends) == 3)
        assert here.rows("SELECT state, count(*) FROM operations GROUP BY state ORDER BY state") == [("armed", 3), ("queued", 47)]
        await here.kill(worker)
        await here.worker(concurrency=3, lookups_per_second_max=1)
        await eventually(lambda: here.rows("SELECT count(DISTINCT operation) FROM operation_notes WHERE kind = 'lost'") == [(3,)])


async def test_a_deploy_makes_no_operation_unknown(tmp_path: Path) -> None:
    async with world(tmp_path, twice) as here:
        worker = await here.worker(concurrency=1)
        await here.client.start(twice.options(id="t"), 30)
        await eventually(lambda: len(provider.sends) >= 3)
        await here.stop(worker)
        assert {state for (state,) in here.rows("SELECT DISTINCT state FROM operations")} <= {"confirmed", "queued"}
        await here.worker()
        assert await here.client.get("t", twice).result(timeout=20) == 30
        assert list(provider.applied.values()) == [1] * 30


@romulus.workflow
async def twice(count: int) -> int:
    return len(await asyncio.gather(*(looked_up(str(n)) for n in range(count))))


# ---- cancelling --------------------------------------------------------------------------------------


@romulus.operation(timeout=60, retry=QUICK)
async def gated(op: Operation) -> str:
    provider.sends.append((op.id, op.attempt))
    await GATES[0].wait()
    return provider.send(op)


@romulus.operation(timeout=60, retry=QUICK, on_cancel="abandon")
async def left_alone(op: Operation) -> str:
    await GATES[0].wait()
    return provider.send(op)


GATES: list[asyncio.Event] = []


async def unless_told(call: Coroutine[Any, Any, str]) -> str:
    """Give *call* up when an event says so: a timeout may have passed before anything of it is recorded."""
    pending = asyncio.ensure_future(call)
    await romulus.wait_for_event("give up")
    pending.cancel()
    try:
        return await pending
    except asyncio.CancelledError:
        return "gave up"


@romulus.workflow
async def races_gated() -> str:
    return await unless_told(gated())


@romulus.workflow
async def races_left_alone() -> str:
    return await unless_told(left_alone())


@romulus.workflow
async def one_of_two() -> str:
    blocker = asyncio.ensure_future(gated())
    await asyncio.sleep(0)
    answer = await unless_told(looked_up("ada"))
    await blocker
    return answer


async def operations_are(here: World, *states: str) -> None:
    """Wait until the operations have these states, in the order they were asked for."""
    await eventually(lambda: here.rows("SELECT state FROM operations ORDER BY seq") == [(state,) for state in states])


@pytest.fixture(autouse=True)
def _gate() -> None:
    GATES[:] = [asyncio.Event()]


async def test_a_cancellation_while_sending_is_delivered_once_the_outcome_is_recorded(tmp_path: Path) -> None:
    async with world(tmp_path, races_gated) as here:
        await here.worker()
        handle = await here.client.start(races_gated.options(id="r"))
        await eventually(lambda: len(provider.sends) == 1)
        await here.client.send_event("give up", correlation_id="r")
        await eventually(lambda: [kind for (kind,) in here.rows("SELECT kind FROM journal ORDER BY position")] == ["wait"])
        GATES[0].set()
        assert await handle.result(timeout=20) == "gave up"
        assert [kind for (kind,) in here.rows("SELECT kind FROM journal ORDER BY position")] == ["wait", "operation"]
        assert here.rows("SELECT state FROM operations") == [("confirmed",)]


async def test_an_operation_that_may_be_abandoned_lets_go_at_once_and_is_settled_on_its_own(tmp_path: Path) -> None:
    async with world(tmp_path, races_left_alone) as here:
        await here.worker()
        handle = await here.client.start(races_left_alone.options(id="r"))
        await operations_are(here, "armed")
        await here.client.send_event("give up", correlation_id="r")
        assert await handle.result(timeout=20) == "gave up"
        GATES[0].set()
        await eventually(lambda: here.rows("SELECT state, awaited FROM operations") == [("confirmed", 0)])
        assert list(provider.applied.values()) == [1]


async def test_a_resolution_of_what_is_queued_or_being_sent_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with world(tmp_path, one_of_two) as here:
        await here.worker(concurrency=1)
        await here.client.start(one_of_two)
        await operations_are(here, "armed", "queued")
        told = {}
        for each in await here.client.operations():
            with pytest.raises(romulus.OperationConflict) as refused:
                await here.client.resolve_operation(each.id, romulus.GiveUp(), reason="gone", reviewer="ada")
            told[each.state] = str(refused.value)
        assert "is armed and cannot be given up: it may be sent this very moment" in told["armed"]
        assert "is queued and cannot be given up: nothing of it was sent; to have it not sent, cancel what awaits it" in told["queued"]
        GATES[0].set()


async def test_a_queued_operation_is_withdrawn_at_once_and_so_it_is_on_replay(tmp_path: Path) -> None:
    async with world(tmp_path, one_of_two) as here:
        first = await here.worker(concurrency=1)
        handle = await here.client.start(one_of_two.options(id="o"))
        await operations_are(here, "armed", "queued")
        await here.client.send_event("give up", correlation_id="o")
        await operations_are(here, "armed", "withdrawn")
        await here.stop(first, grace=0)
        await here.worker()
        GATES[0].set()
        await here.until("o", RunStatus.SUCCEEDED, RunStatus.HELD)
        if (await handle.describe()).status is RunStatus.SUCCEEDED:
            assert await handle.result() == "gave up"
        assert "looked_up" not in {name for (name,) in here.rows("SELECT name FROM operations WHERE sends > 0")}


# ---- people, callbacks, ended runs --------------------------------------------------------------------


async def held(here: World) -> str:
    """Return the ID of an operation that waits for a person, its run held."""
    provider.behaviour = ["lost after"]
    await here.worker()
    await here.client.start(update.options(id="u"), "neither")
    await here.until("u", RunStatus.HELD)
    (operation,) = await here.client.operations(state="held")
    return operation.id


async def test_a_reviewer_who_knows_that_it_was_applied_gives_the_result(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        with pytest.raises(romulus.SerializationError):
            await here.client.resolve_operation(operation, Applied(7), reason="seen", reviewer="ada")
        await here.client.resolve_operation(operation, Applied("by hand"), reason="seen in the CRM", reviewer="ada")
        assert await here.client.get("u", update).result(timeout=20) == "by hand"
        with pytest.raises(romulus.OperationConflict, match="is confirmed"):
            await here.client.resolve_operation(operation, NotApplied(), reason="no", reviewer="bob")
        lines = (await here.client.operation(operation)).history
        assert [(line.kind, line.who) for line in lines if line.who == "ada"] == [("resolved: applied", "ada")]
        assert lines[-1].detail == {"reason": "seen in the CRM"}
        assert len(provider.sends) == 1


async def test_a_reviewer_who_knows_that_it_was_not_applied_has_it_sent_again_under_its_id(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        await here.client.resolve_operation(operation, NotApplied(), reason="not there", reviewer="ada")
        assert (await here.client.get("u", update).result(timeout=20)).startswith("done ")
        assert {identity for identity, _ in provider.sends} == {operation}
        assert len(provider.sends) == 2


async def test_a_reviewer_who_gives_up_raises_in_the_workflow(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        await here.client.resolve_operation(operation, romulus.GiveUp(), reason="the provider is gone", reviewer="ada")
        result = await here.client.get("u", update).result(timeout=20)
        assert result.startswith("OperationAbandoned: ")
        assert "the provider is gone" in result


@pytest.mark.parametrize("given", [{"reason": "", "reviewer": "ada"}, {"reason": "seen", "reviewer": " "}])
async def test_a_resolution_needs_a_reason_and_a_reviewer(tmp_path: Path, given: dict[str, str]) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        with pytest.raises(romulus.ConfigurationError, match="needs reason= and reviewer="):
            await here.client.resolve_operation(operation, NotApplied(), **given)


async def test_an_operation_is_settled_after_its_run_was_terminated(tmp_path: Path) -> None:
    provider.lookups = [Unknown("not yet")]
    async with world(tmp_path, slow) as here:
        await here.worker()
        handle = await here.client.start(slow.options(id="s"), "lookup")
        await eventually(lambda: len(provider.sends) == 1)
        await handle.terminate("enough")
        await eventually(lambda: here.rows("SELECT state, awaited FROM operations") == [("confirmed", 0)])
        assert list(provider.applied.values()) == [1]
        assert (await handle.describe()).status is RunStatus.TERMINATED


@romulus.operation(timeout=0.1, retry=QUICK)
async def deaf(op: Operation) -> str:
    provider.sends.append((op.id, op.attempt))
    while not GATES[0].is_set():
        try:
            await GATES[0].wait()
        except asyncio.CancelledError:
            continue  # as a bare `except:` does
    return "done after all"


@romulus.workflow
async def has_a_deaf_write() -> str:
    return await deaf()


async def test_a_send_that_goes_on_past_its_timeout_is_unknown_by_then_and_what_it_comes_to_is_evidence(tmp_path: Path) -> None:
    async with world(tmp_path, has_a_deaf_write) as here:
        await here.worker()
        handle = await here.client.start(has_a_deaf_write.options(id="d"))
        held = await here.until("d", "held")
        assert "was sent once" in str(held.hold_reason)
        (operation,) = await here.client.operations()
        lost = (await here.client.operation(operation.id)).history[0]
        assert (lost.kind, lost.error) == ("no answer", "TimeoutError: operation 'deaf' ran past its timeout of 0.1 s")

        GATES[0].set()
        assert await handle.result(timeout=20) == "done after all"
        assert len(provider.sends) == 1


async def test_a_worker_stops_without_a_body_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("romulus.worker.operations.telling.TRIES", 2)
    async with world(tmp_path, has_a_deaf_write) as here:
        worker = await here.worker(grace=100_000)
        await here.client.start(has_a_deaf_write.options(id="d"))
        await eventually(lambda: len(provider.sends) == 1)
        await here.stop(worker, grace=0)
        assert here.rows("SELECT count(*) FROM workers") == [(0,)]
        GATES[0].set()


async def test_an_unknown_operation_blocks_no_other_branch(tmp_path: Path) -> None:
    provider.behaviour = ["lost after"]
    async with world(tmp_path, branches) as here:
        await here.worker()
        await here.client.start(branches.options(id="b"))
        seen = await here.until("b", RunStatus.HELD)
        assert seen.attributes == {"others": 3}


@romulus.workflow
async def branches() -> str:
    stuck = asyncio.ensure_future(blind.aio("ada"))
    for number in range(3):
        await note(number)
        romulus.set_attributes(others=number + 1)
    return await stuck


@romulus.step
async def note(number: int) -> int:
    return number


async def test_a_result_that_cannot_be_stored_is_looked_up_and_never_sent_again(tmp_path: Path) -> None:
    async with world(tmp_path, unstorable_flow) as here:
        await here.worker()
        handle = await here.client.start(unstorable_flow.options(id="x"))
        assert (await handle.result(timeout=20)).startswith("found ")
        assert len(provider.sends) == 1


@romulus.operation(timeout=5, retry=QUICK, lookup_retry=QUICK)
async def unstorable(op: Operation) -> str:
    provider.send(op)
    return object()  # type: ignore[return-value]


@unstorable.lookup
async def find_unstorable(op: Operation) -> LookupResult[str]:
    return provider.find(op)


@romulus.workflow
async def unstorable_flow() -> str:
    return await unstorable()


async def test_outside_a_run_an_operation_is_refused() -> None:
    with pytest.raises(romulus.NotInRun, match="for_testing"):
        await looked_up("ada")
    assert (await looked_up.fn(Operation.for_testing(), "ada")).startswith("done ")


async def test_a_run_shows_what_it_awaits_of_its_operations(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        (pending,) = (await here.client.get("u").describe()).pending
        assert (pending.kind, pending.name, pending.state, pending.attempt) == ("operation", "blind", "held", 1)
        await here.client.resolve_operation(operation, romulus.GiveUp(), reason="gone", reviewer="ada")
        await here.until("u", RunStatus.SUCCEEDED)
        (entry,) = await here.client.get("u").history()
        assert (entry.kind, entry.error, entry.event_id) == ("operation", "OperationAbandoned: gone", None)


async def test_a_cancel_waits_for_an_operation_in_review_and_is_delivered_with_its_outcome(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        handle = here.client.get("u", update)
        assert await handle.cancel("enough") == "accepted"
        await eventually(lambda: here.rows("SELECT status, cancel_seq FROM runs") == [("held", 1)])
        await here.client.resolve_operation(operation, Applied("by hand"), reason="seen", reviewer="ada")
        await here.until("u", RunStatus.CANCELLED)
        assert [kind for (kind,) in here.rows("SELECT kind FROM journal ORDER BY position")] == ["cancel", "operation"]


async def test_of_two_reviewers_one_is_refused_with_what_happened(tmp_path: Path) -> None:
    async with world(tmp_path, update) as here:
        operation = await held(here)
        said = await asyncio.gather(
            here.client.resolve_operation(operation, Applied("one"), reason="seen", reviewer="ada"),
            here.client.resolve_operation(operation, romulus.GiveUp(), reason="gone", reviewer="bob"),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in said) == ["OperationConflict", "OperationRecord"]
        (refused,) = [str(each) for each in said if isinstance(each, romulus.OperationConflict)]
        told = [
            " is abandoned and cannot be resolved as applied: 'resolved: given up' of 'bob' settled it at ",
            " is confirmed and cannot be given up: 'resolved: applied' of 'ada' settled it at ",
        ]
        assert told[isinstance(said[0], romulus.OperationRecord)] in refused
        result = await here.client.get("u", update).result(timeout=20)
        assert (result == "one") == isinstance(said[0], romulus.OperationRecord)


@romulus.operation(timeout=60, idempotent=True, retry=QUICK)
async def second_is_slow(op: Operation) -> str:
    provider.sends.append((op.id, op.attempt))
    if len(provider.sends) == 1:
        raise TimeoutError
    await GATES[0].wait()
    return "sent again"


@romulus.workflow
async def sends_again() -> str:
    return await second_is_slow()


async def test_a_deploy_lets_what_is_sent_again_end(tmp_path: Path) -> None:
    async with world(tmp_path, sends_again) as here:
        worker = await here.worker()
        await here.client.start(sends_again.options(id="s"))
        await eventually(lambda: len(provider.sends) == 2)
        stopping = asyncio.ensure_future(here.stop(worker))
        await eventually(lambda: worker.stopping)
        GATES[0].set()
        await stopping
        assert here.rows("SELECT state, sends FROM operations") == [("confirmed", 2)]
        assert "lost" not in {kind for (kind,) in here.rows("SELECT kind FROM operation_notes")}


# ---- the run's own timeout, and the time it has to clean up --------------------------------------------


@romulus.operation(timeout=5, on_cancel="abandon")
async def let_go(op: Operation) -> str:
    return provider.send(op)


@romulus.workflow(timeout=1)
async def hurried(ability: str) -> str:
    return await (let_go() if ability == "abandon" else looked_up("ada"))


@romulus.workflow
async def cleans_up() -> None:
    try:
        await gated()
    finally:
        await note(1)


async def test_a_runs_own_timeout_ends_the_wait_for_a_review_where_the_operation_may_be_abandoned(tmp_path: Path) -> None:
    provider.behaviour = ["lost after"]
    async with world(tmp_path, hurried) as here:
        await here.worker()
        handle = await here.client.start(hurried.options(id="h"), "abandon")
        await here.until("h", RunStatus.FAILED)
        assert "RunTimeout" in ((await handle.describe()).error or "")
        assert here.rows("SELECT state, awaited FROM operations") == [("held", 0)]


async def test_a_runs_own_timeout_waits_for_a_review_where_the_operation_may_not_be_abandoned(tmp_path: Path) -> None:
    provider.behaviour, provider.lookups = ["lost after"], [Unknown()] * 3
    async with world(tmp_path, hurried) as here:
        await here.worker()
        handle = await here.client.start(hurried.options(id="h"), "settle")
        await here.until("h", RunStatus.HELD)
        await eventually(lambda: here.rows("SELECT 1 FROM workers, runs WHERE renewed_at > deadline") != [])  # its time is over
        assert (await handle.describe()).status is RunStatus.HELD
        (operation,) = await here.client.operations(state="held")
        await here.client.resolve_operation(operation.id, Applied("by hand"), reason="seen", reviewer="ada")
        await here.until("h", RunStatus.SUCCEEDED, RunStatus.FAILED)


async def test_the_time_to_clean_up_counts_from_when_the_operation_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over: list[bool] = []
    real = arming.awaits_settlement
    monkeypatch.setattr(arming, "awaits_settlement", lambda driver: over.append(real(driver)) or over[-1])
    async with world(tmp_path, cleans_up) as here:
        await here.worker(cancel_grace=2_000_000)
        handle = await here.client.start(cleans_up.options(id="c"))
        await eventually(lambda: len(provider.sends) == 1)
        await handle.cancel("enough")
        await eventually(lambda: over == [True])  # it would have been too long
        GATES[0].set()
        await here.until("c", RunStatus.CANCELLED, RunStatus.FAILED)
        assert [(kind, name) for kind, name in here.rows("SELECT kind, name FROM journal ORDER BY position")][1:] == [
            ("operation", "gated"), ("step", "note"),
        ]  # fmt: skip


async def test_the_time_to_clean_up_counts_from_the_settlement_on_replay_too(tmp_path: Path) -> None:
    grace = 2_000_000
    async with world(tmp_path, cleans_up) as here:
        first = await here.worker()
        handle = await here.client.start(cleans_up.options(id="c"))
        await eventually(lambda: len(provider.sends) == 1)
        await handle.cancel("enough")
        await eventually(lambda: here.rows("SELECT 1 FROM journal WHERE kind = 'cancel'") != [])
        await here.stop(first, grace=0)
        (operation,) = await here.client.operations()
        await here.client.resolve_operation(operation.id, Applied("by hand"), reason="seen", reviewer="ada")
        ((cancelled_at,),) = here.rows("SELECT at FROM journal WHERE kind = 'cancel'")
        await eventually(lambda: time.time_ns() // 1_000 > cancelled_at + grace)  # counted from the cancel, its time is over
        await here.worker(cancel_grace=grace)
        await here.until("c", RunStatus.CANCELLED, RunStatus.FAILED)
        assert [name for (name,) in here.rows("SELECT name FROM journal ORDER BY position")] == ["", "gated", "note"]


@romulus.workflow
async def cleans_up_slowly() -> None:
    try:
        await gated()
    finally:
        await noted_at_a_gate()


@romulus.step
async def noted_at_a_gate() -> None:
    CLEAN_UPS.append(1)
    await GATES[1].wait()


CLEAN_UPS: list[int] = []


async def test_a_clean_up_that_is_taken_over_has_its_time_from_the_settlement(tmp_path: Path) -> None:
    GATES.append(asyncio.Event())
    CLEAN_UPS.clear()
    async with world(tmp_path, cleans_up_slowly) as here:
        first = await here.worker()
        handle = await here.client.start(cleans_up_slowly.options(id="c"))
        await eventually(lambda: len(provider.sends) == 1)
        await handle.cancel("enough")
        await eventually(lambda: here.rows("SELECT 1 FROM journal WHERE kind = 'cancel'") != [])
        GATES[0].set()
        await eventually(lambda: len(CLEAN_UPS) == 1)
        await here.kill(first)
        with here.database() as database:  # counted from the cancel, its time is long over
            database.execute("UPDATE runs SET started_at = started_at - 7200000000")
            database.execute("UPDATE journal SET at = at - 7200000000 WHERE kind = 'cancel'")
        await here.worker()
        GATES[1].set()
        await here.until("c", RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.HELD)
        assert [name for (name,) in here.rows("SELECT name FROM journal ORDER BY position")] == ["", "gated", "noted_at_a_gate"]


# ---- forks -------------------------------------------------------------------------------------------------


@romulus.workflow
async def notes_then_writes() -> str:
    await note(1)
    await note(2)
    return await gated()


async def test_a_fork_that_would_send_an_open_operation_again_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path, notes_then_writes) as here:
        await here.worker()
        handle = await here.client.start(notes_then_writes.options(id="n"))
        await eventually(lambda: len(provider.sends) == 1)
        with pytest.raises(romulus.OperationConflict, match="asked for at position 2, is armed: a fork at 2 would send it again"):
            await handle.fork(2)
        fork = await handle.fork(1)
        assert fork.id == "n~1"
        await fork.terminate("enough")
        GATES[0].set()
        await handle.result(timeout=20)
        assert await (await handle.fork(2)).result(timeout=20)  # it is known by now what became of it
        assert len(provider.applied) >= 2


async def test_a_retry_that_could_send_an_open_operation_again_is_refused_until_it_is_settled(tmp_path: Path) -> None:
    async with world(tmp_path, notes_then_writes) as here:
        await here.worker()
        handle = await here.client.start(notes_then_writes.options(id="n"))
        await eventually(lambda: len(provider.sends) == 1)
        with pytest.raises(IllegalTransition, match="running cannot be retried"):
            await handle.retry()
        await handle.terminate("enough")
        (open_one,) = await here.client.operations()
        with pytest.raises(romulus.OperationConflict, match=f"{open_one.id}.* is armed: a retry of run 'n' could send it again") as refused:
            await handle.retry()
        assert f"`romulus operations resolve WORD {open_one.id}`" in str(refused.value)
        assert (await handle.describe()).status is RunStatus.TERMINATED

        GATES[0].set()
        await operations_are(here, "confirmed")
        await handle.retry()
        await here.until("n", RunStatus.SUCCEEDED)
        assert len(provider.applied) == 2  # what its journal does not have is asked for again


async def test_a_fork_is_refused_for_an_operation_whose_run_ended_without_it(tmp_path: Path) -> None:
    async with world(tmp_path, notes_then_writes) as here:
        await here.worker()
        handle = await here.client.start(notes_then_writes.options(id="n"))
        await eventually(lambda: len(provider.sends) == 1)
        await handle.terminate("enough")
        with pytest.raises(romulus.OperationConflict, match="settle it first, or fork 'n' before 2"):
            await handle.fork(2)
        await handle.fork(1)
