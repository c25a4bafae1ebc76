"""What code asks about its run: time, random numbers, patches, the attempt."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any

import pytest

import romulus
from romulus.authoring.current import Attempt, attempt_var
from romulus.core.commands import Continued
from romulus.core.instance import RunInfo
from tests.authoring.runs import begin, deliver, ended

RUN = RunInfo("run-1", "sell", "1", datetime(2026, 1, 1, tzinfo=UTC), "default", 1)


def attempt(**given: Any) -> Attempt:
    return Attempt(RUN, "charge", given.pop("seq", 3), given.pop("number", 2), 17, given.pop("seed", b"seed"), **given)


def in_a_step(mine: Attempt, call: Callable[[], Any]) -> Any:
    context = copy_context()
    context.run(attempt_var.set, mine)
    return context.run(call)


@romulus.step
async def charge() -> None: ...


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (romulus.now, "romulus.now"),
        (romulus.uuid4, "romulus.uuid4"),
        (romulus.rng, "romulus.rng"),
        (lambda: romulus.patched("fast"), "romulus.patched"),
        (romulus.current_run, "romulus.current_run"),
        (romulus.current_attempt, "romulus.current_attempt"),
        (lambda: romulus.wait_for_event("paid"), "romulus.wait_for_event"),
    ],
)
def test_outside_a_run_nothing_is_known_of_one(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(romulus.NotInRun, match=name):
        call()


def test_now_is_the_time_of_what_was_recorded_last() -> None:
    @romulus.workflow
    async def reads() -> list[datetime]:
        first = romulus.now()
        await charge()
        return [first, romulus.now()]

    instance = begin(reads)
    [command] = instance.open.values()
    deliver(instance, command, b"null", at=90_000_000)
    assert ended(instance) == [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 12, 1, 30, tzinfo=UTC)]


def test_random_numbers_and_uuids_come_from_the_runs_seed() -> None:
    @romulus.workflow
    async def draws() -> list[str]:
        return [str(romulus.uuid4()), str(romulus.uuid4()), str(romulus.rng().random()), str(romulus.rng().random())]

    first, again, other = (ended(begin(draws, seed=seed)) for seed in ("a" * 32, "a" * 32, "b" * 32))
    assert first == again
    assert len({*first, *other}) == 8


def test_a_new_run_takes_the_new_side_of_a_patch_and_records_it() -> None:
    @romulus.workflow
    async def changed() -> bool:
        return romulus.patched("fast")

    instance = begin(changed)
    assert ended(instance) is True
    assert instance.take_patches() == [("fast", True)]


@pytest.mark.parametrize("name", ["", "a\x00", "x" * 201, 7])
def test_a_patch_id_that_cannot_be_stored_is_refused(name: Any) -> None:
    @romulus.workflow
    async def changed() -> str:
        try:
            romulus.patched(name)
        except ValueError as error:
            return str(error)
        return "not refused"

    assert ended(begin(changed)).startswith("patch ID ")


def test_continue_as_new_gives_the_next_generation_its_workflow_and_arguments() -> None:
    @romulus.workflow(version="2")
    async def counts(n: int, step: int = 1) -> int:
        romulus.continue_as_new(counts.options(version="3"), n + step)

    outcome = begin(counts, 4).outcome
    assert outcome == Continued("counts", "3", counts.spec.arguments.dump((5, 1), {}))


@pytest.mark.parametrize("options", [{"id": "other"}, {"delay": 5}, {"priority": 1}, {"attributes": {"a": 1}}])
def test_continue_as_new_keeps_the_runs_own_options(options: dict[str, Any]) -> None:
    @romulus.workflow
    async def counts() -> str:
        try:
            romulus.continue_as_new(counts.options(**options))
        except ValueError as error:
            return str(error)

    assert "keeps the run's ID and options" in ended(begin(counts))


def test_workflow_code_and_step_code_know_their_run() -> None:
    @romulus.workflow
    async def asks() -> list[str]:
        run = romulus.current_run()
        return [run.id, run.workflow, run.version]

    assert ended(begin(asks)) == ["run-1", "asks", "1"]
    assert in_a_step(attempt(), romulus.current_run) is RUN


def test_workflow_code_has_no_attempt() -> None:
    @romulus.workflow
    async def asks() -> str:
        try:
            romulus.current_attempt()
        except romulus.NotInRun as error:
            return str(error)
        return "not refused"

    assert "only inside a step" in in_a_step(attempt(), lambda: ended(begin(asks)))


def test_a_step_knows_its_attempt() -> None:
    mine = attempt(last_heartbeat={"row": 7})
    found = in_a_step(mine, romulus.current_attempt)
    assert (found.run_id, found.step, found.seq, found.number, found.fence) == ("run-1", "charge", 3, 2, 17)
    assert (found.cancelled, found.last_heartbeat) == (False, {"row": 7})


def test_an_idempotency_key_is_the_same_in_every_attempt_and_in_no_other_command_or_generation() -> None:
    key = attempt(number=1).idempotency_key
    assert attempt(number=2).idempotency_key == key
    assert len({key, attempt(seq=4).idempotency_key, attempt(seed=b"other").idempotency_key}) == 3
    assert key.isalnum()


def test_heartbeats_reach_the_worker() -> None:
    beats: list[object] = []
    mine = attempt(beat=beats.append)
    mine.heartbeat()
    mine.heartbeat({"row": 8})
    assert beats == [None, {"row": 8}]


def test_only_a_transactional_step_has_a_connection() -> None:
    assert attempt(connection="open").connection == "open"
    with pytest.raises(romulus.NotInRun, match=r"step 'charge' has no connection: declare it @romulus.step\(transaction=True\)"):
        _ = attempt().connection
