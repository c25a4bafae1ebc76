"""`romulus operations`: list, show and resolve, on a store with an operation that waits for a person."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import romulus

from .terminal import romulus_here

SENT: list[str] = []


@romulus.operation(timeout=5)
async def write(op: romulus.Operation, customer: str) -> str:
    SENT.append(op.id)
    if len(SENT) == 1:
        raise TimeoutError("no answer")
    return f"wrote {customer}"


@romulus.workflow
async def writes(customer: str) -> str:
    return await write(customer)


app = romulus.App(workflows=[writes])


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The ID of an operation that waits for a person."""
    SENT.clear()
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{tmp_path / 'runs.db'}")
    with pytest.raises(romulus.RunHeld):
        romulus.App(workflows=[writes]).run(writes.options(id="w"), "ada")
    (item,) = romulus_here("operations", "list", "--state", "held", "--json").json["items"]
    return str(item["id"])


def finish() -> str:
    return romulus.App(workflows=[writes]).run(writes.options(id="w"), "ada")


def resolve(word: str, *more: str) -> int:
    return romulus_here("operations", "resolve", word, *more, "--reason", "looked", "--reviewer", "ada").code


def test_a_listing_shows_what_waits_and_showing_it_says_why(held: str) -> None:
    listed = romulus_here("operations", "list")
    assert held in listed.out.replace("\n", "")
    shown = romulus_here("operations", "show", held)
    assert (shown.code, "no idempotency key" in shown.out.replace("\n", " ")) == (0, True)
    assert [line["kind"] for line in romulus_here("operations", "show", held, "--json").json["history"]] == ["no answer", "nothing to ask"]


def test_not_applied_has_it_sent_again_under_the_same_id(held: str) -> None:
    assert resolve("not-applied", held) == 0
    assert finish() == "wrote ada"
    assert [held, held] == SENT


def test_give_up_raises_in_the_workflow(held: str) -> None:
    assert resolve("give-up", held) == 0
    with pytest.raises(romulus.RunFailed, match="OperationAbandoned"):
        finish()


def test_applied_needs_the_result_and_the_code_that_checks_it(held: str) -> None:
    assert resolve("applied", held) == 2
    assert resolve("applied", held, "--value", '"by hand"') == 2


def test_several_are_resolved_each_on_its_own_and_what_is_settled_is_refused(held: str) -> None:
    assert resolve("give-up", held, "nothing") == 3
    assert resolve("give-up", held) == 4
    assert resolve("give-up", "nothing") == 3


def test_an_unknown_state_names_those_there_are(held: str) -> None:
    said = romulus_here("operations", "list", "--state", "lost")
    assert (said.code, "there are queued, armed" in said.err.replace("\n", " ")) == (2, True)


def test_an_applied_result_is_checked_by_the_app_of_a_client(held: str) -> None:
    async def apply() -> None:
        async with romulus.AsyncClient(romulus.App(workflows=[writes])) as client:
            await client.resolve_operation(held, romulus.Applied("by hand"), reason="seen", reviewer="ada")

    asyncio.run(apply())
    assert finish() == "by hand"


def test_doctor_names_operations_that_only_a_person_can_settle(held: str) -> None:
    found = {finding["check"]: finding for finding in romulus_here("doctor", "--json").json["findings"]}
    assert (found["held operations"]["state"], found["operations"]["state"]) == ("note", "note")
    assert "write: neither a lookup nor idempotent=True" in found["operations"]["detail"]
