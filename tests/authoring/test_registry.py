"""What an App knows by name, and what it refuses when it is built."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import romulus
from romulus.authoring.registry import Registry


@romulus.step
async def charge(cents: int) -> int:
    return cents


@romulus.step
async def refund(cents: int) -> int:
    return -cents


@romulus.step
async def unreached(cents: int) -> int:
    return cents


async def helper(cents: int) -> int:
    return await refund(cents)


@romulus.workflow
async def sell(cents: int) -> int:
    return await charge(cents) + await helper(cents)


@romulus.workflow(name="sell", version="2")
async def sell_2(cents: int) -> int:
    return await charge(cents)


@romulus.workflow
async def chooses(cents: int) -> int:
    if cents > 0:
        romulus.continue_as_new(sell, cents)
    return cents


def test_an_app_holds_the_steps_its_workflows_reach_by_name() -> None:
    assert set(Registry([sell]).steps) == {"charge", "refund"}


def test_an_app_holds_the_workflows_its_workflows_reach_by_name() -> None:
    assert set(Registry([chooses]).workflows) == {("chooses", "1"), ("sell", "1")}


def test_an_app_holds_the_steps_it_is_given() -> None:
    assert set(Registry([sell_2], steps=[unreached]).steps) == {"charge", "unreached"}


def test_two_versions_live_side_by_side_each_with_its_own_digest() -> None:
    registry = Registry([sell, sell_2])
    assert registry.workflow("sell", "1") is sell.spec
    assert registry.workflow("sell", "2") is sell_2.spec
    assert registry.digests["sell", "1"] != registry.digests["sell", "2"]


def test_a_copy_with_options_is_the_same_workflow() -> None:
    assert set(Registry([sell, sell.options(id="x")]).workflows) == {("sell", "1")}


def test_an_unknown_workflow_is_answered_with_the_known_ones() -> None:
    with pytest.raises(romulus.UnknownWorkflow, match=r"no workflow 'sell' version '3' here \(known: sell version 1, sell version 2\)"):
        Registry([sell, sell_2]).workflow("sell", "3")


def test_two_workflows_of_one_name_and_version_are_refused() -> None:
    @romulus.workflow(name="sell")
    async def other(cents: int) -> int:
        return cents

    with pytest.raises(romulus.DefinitionError, match=r"two workflows are named 'sell' version '1' \(.*sell and .*other\): give one"):
        Registry([sell, other])


def test_two_steps_of_one_name_are_refused_wherever_they_come_from() -> None:
    @romulus.step(name="charge")
    async def other(cents: int) -> int:
        return cents

    with pytest.raises(romulus.DefinitionError, match=r"two steps are named 'charge' \(.*other and .*charge\): give one of them"):
        Registry([sell], steps=[other])


def test_a_step_and_its_copy_with_options_may_both_be_reached() -> None:
    registry = Registry([sell], steps=[charge.options(timeout=5), charge.options(name="charge_again")])
    assert set(registry.steps) == {"charge", "charge_again", "refund"}


def test_a_step_the_app_knows_is_admitted_also_under_another_name() -> None:
    registry = Registry([sell])
    registry.admit(charge.spec)
    registry.admit(charge.options(name="again", timeout=5).spec)


def test_a_step_found_dynamically_is_refused_with_the_remedy() -> None:
    with pytest.raises(romulus.DefinitionError, match=r"step 'unreached' is not known to the App: add it to App\(steps=\[…\]\)"):
        Registry([sell]).admit(unreached.spec)


def test_a_copy_may_not_take_another_steps_name() -> None:
    with pytest.raises(romulus.DefinitionError, match="step 'refund' is another function's name"):
        Registry([sell]).admit(charge.options(name="refund").spec)


def test_what_a_replay_cannot_repeat_is_refused_when_the_app_is_built() -> None:
    @romulus.workflow
    async def naps(seconds: float) -> float:
        time.sleep(seconds)
        return time.time()

    with pytest.raises(romulus.NotDeterministic, match=r"time\.sleep") as caught:
        Registry([naps])
    assert "time.time" in str(caught.value)


@romulus.resource
async def database() -> AsyncIterator[str]:
    yield "open"


def test_two_resources_of_one_name_are_refused() -> None:
    first = database

    def again() -> romulus.Resource[str]:
        @romulus.resource
        async def database() -> AsyncIterator[str]:
            yield "other"

        return database

    assert Registry([sell], resources=[first, first]).resources == [first]
    with pytest.raises(romulus.DefinitionError, match="two resources are named 'database'"):
        Registry([sell], resources=[first, again()])


async def plain(cents: int) -> int:
    return cents


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workflows": [plain]}, r"plain is among App\(workflows=\[…\]\) but is not one: decorate it with @romulus.workflow"),
        ({"workflows": [charge]}, r"charge is among App\(workflows"),
        ({"workflows": [], "steps": [plain]}, r"plain is among App\(steps=\[…\]\) but is not one: decorate it with @romulus.step"),
        ({"workflows": [], "resources": [plain]}, r"is among App\(resources=\[…\]\) but is not one: decorate it with @romulus.resource"),
        ({"workflows": [], "value_max_bytes": 0}, "value_max_bytes must be a number of bytes above 0"),
        ({"workflows": [], "value_max_bytes": "2M"}, "value_max_bytes must be a number of bytes above 0, not '2M'"),
    ],
)
def test_what_is_not_declared_is_refused_with_the_remedy(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(romulus.RomulusError, match=message):
        Registry(**arguments)


async def test_the_first_run_of_an_app_finds_how_its_values_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Working that out takes tens of milliseconds, in which the loop would stand still."""

    @romulus.step
    async def doubled(n: int) -> int:
        return 2 * n

    @romulus.operation(idempotent=True)
    async def told(op: romulus.Operation, n: int) -> str:
        return str(n)

    @romulus.workflow
    async def adds(n: int) -> list[str]:
        return [await told(await doubled(n))]

    app = romulus.App("sqlite://", workflows=[adds])

    def late(annotation: object) -> None:
        raise AssertionError(f"{annotation} is looked at while a run is under way")

    monkeypatch.setattr("romulus.core.value_codec.plan", late)
    async with app.worker(), app.client() as client:
        assert await (await client.start(adds, 1)).result() == ["2"]


async def test_an_annotation_that_cannot_be_used_is_told_of_where_it_is_used() -> None:
    class Opaque:
        pass

    @romulus.workflow
    async def takes(opaque: Opaque) -> None:
        pass

    app = romulus.App("sqlite://", workflows=[takes])
    async with app.client() as client:
        with pytest.raises(romulus.DefinitionError, match="Opaque"):
            await client.start(takes, Opaque())
