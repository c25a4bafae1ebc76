"""Children inside an instance: what their parent's code asks for, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import romulus
from romulus.core.children import child_id
from romulus.core.commands import ChildCall
from romulus.core.errors import ChildFailed, Mismatch, RunConflict
from romulus.core.failures import dump_failure, load_failure
from romulus.core.instance import Instance, RunInfo
from romulus.core.record import Entry
from romulus.core.seeds import Seeds
from romulus.core.values import Vault
from tests.core.rig import START, UTC, datetime

SEEDS = Seeds.first("ab" * 16)


@romulus.workflow
async def item(n: int) -> int:
    return n


@romulus.workflow
async def awaits() -> list[Any]:
    return [*await asyncio.gather(item(1), item.options(id="chosen")(2), return_exceptions=True)]


@romulus.workflow
async def starts() -> list[Any]:
    handle = await romulus.start(item, 1)
    first = asyncio.ensure_future(handle.result())
    await asyncio.sleep(0)
    first.cancel()
    return [handle.id, await handle, await handle]


def begun(workflow: Any, *, depth: int = 0) -> Instance:
    info = RunInfo("p", workflow.name, "1", datetime.fromtimestamp(START / 1e6, UTC), "default", 1, depth)
    instance = Instance(workflow.spec, info, b"{}", SEEDS, START, Vault(None, 1_000_000))
    instance.start(replaying=False)
    return instance


def answer(instance: Instance, seq: int, kind: str, body: bytes, *, failed: bool = False, info: str = "") -> None:
    command = instance.open[seq]
    entry = Entry(instance.position, kind, seq, command.name, 0, instance.now, failed, body, command.digest, info)
    instance.deliver(entry, replaying=False)


def result(instance: Instance) -> Any:
    assert instance.outcome is not None
    return json.loads(instance.outcome.body)  # type: ignore[union-attr]


def test_children_awaited_together_are_asked_for_together() -> None:
    instance = begun(awaits)
    commands = instance.take_issued()

    assert [(c.kind, c.name, c.detail.id) for c in commands if isinstance(c.detail, ChildCall)] == [
        ("child", "item", None), ("child", "item", "chosen"),
    ]  # fmt: skip
    assert commands[0].digest != commands[1].digest


def test_a_child_that_fails_raises_with_its_cause_and_one_cancelled_without() -> None:
    @romulus.workflow
    async def says() -> list[str]:
        return [f"{error} / {error.__cause__!r}" for error in await asyncio.gather(item(1), item(2), return_exceptions=True)]  # type: ignore[union-attr]

    instance = begun(says)
    answer(instance, 1, "child", dump_failure(ValueError("no")), failed=True, info='["p~1","failed"]')
    answer(instance, 2, "child", b"", failed=True, info='["p~2","cancelled"]')

    assert result(instance) == ["child 'p~1' failed: ValueError: no / ValueError('no')", "child 'p~2' was cancelled / None"]


def test_a_conflict_is_raised_as_itself() -> None:
    @romulus.workflow
    async def says() -> str:
        with pytest.raises(RunConflict) as raised:
            await item.options(id="taken")(1)
        return raised.value.run_id

    instance = begun(says)
    answer(instance, 1, "child", dump_failure(RunConflict("taken", "with other arguments")), failed=True)

    assert result(instance) == "taken"


def test_a_handles_outcome_stays_and_giving_up_a_wait_on_it_withdraws_nothing() -> None:
    instance = begun(starts)
    [command] = instance.take_issued()
    assert command.kind == "started"
    answer(instance, 1, "started", b'"p~abc"')
    assert instance.open[1].kind == "child"
    assert instance.take_issued() == instance.take_withdrawn() == []
    answer(instance, 1, "child", b"7", info='["p~abc","succeeded"]')

    assert result(instance) == ["p~abc", 7, 7]


def test_a_replay_that_awaits_where_the_record_has_a_start_is_a_mismatch() -> None:
    instance = begun(starts)
    entry = Entry(0, "child", 1, "item", 0, START, False, b"1", instance.open[1].digest, '["x","succeeded"]')

    with pytest.raises(Mismatch, match="recorded a child of workflow 'item'.*asks for the start of a child of workflow 'item'"):
        instance.deliver(entry, replaying=True)


def test_ids_of_children_depend_on_the_seed_and_the_command_and_stay_short() -> None:
    other = child_id("p", b"x" * 16, 1)
    deep = child_id("r" * 200 + "~0123456789abcdef", SEEDS.newest, 1)

    assert len({child_id("p", SEEDS.newest, 1), child_id("p", SEEDS.newest, 2), other}) == 3
    assert other.startswith("p~")
    assert len(deep) <= 200
    assert deep.count("~") == 1


def test_a_run_with_fifty_parents_starts_none() -> None:
    @romulus.workflow
    async def says() -> str:
        try:
            await item(1)
        except romulus.TooDeep as error:
            return str(error)
        return "started"

    assert "50 parents above it" in result(begun(says, depth=50))
    assert begun(says, depth=49).outcome is None


@romulus.step
async def pay() -> None: ...


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (pay, "'pay' is no workflow: a workflow's code calls it, and the workflow is started"),
        (len, "a run is started of a workflow, not of builtin_function_or_method: decorate the function with @romulus.workflow"),
    ],
)
def test_what_is_no_workflow_is_not_started(what: Any, told: str) -> None:
    @romulus.workflow
    async def says() -> str:
        try:
            await romulus.start(what)
        except romulus.DefinitionError as error:
            return str(error)
        return "started"

    assert result(begun(says)) == told


def test_child_failed_is_rebuilt_with_all_that_it_says() -> None:
    error = ChildFailed("p~1", "failed", "ValueError: no")
    error.__cause__ = ValueError("no")
    again = load_failure(dump_failure(error))

    assert isinstance(again, ChildFailed)
    assert (str(again), again.run_id, again.status, again.error) == (str(error), "p~1", "failed", "ValueError: no")
    assert isinstance(again.__cause__, ValueError)
