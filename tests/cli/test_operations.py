"""`romulus operations`: list, show and resolve, on a store with an operation that waits for a person."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

import romulus
from romulus.cli.main import root

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


def test_a_run_is_not_retried_while_its_operation_is_open_and_is_told_what_to_do(held: str) -> None:
    assert romulus_here("runs", "terminate", "w").code == 0
    refused = romulus_here("runs", "retry", "w")
    said = (refused.out + refused.err).replace("\n", " ")
    assert (refused.code, f"operation '{held}' of 'write' is held" in said) == (4, True)
    assert f"resolve it (`romulus operations resolve WORD {held}`), then retry" in said

    assert resolve("give-up", held) == 0
    assert romulus_here("runs", "retry", "w").code == 0


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
    assert "held because" in romulus_here("operations", "show", held).out
    assert resolve("give-up", held) == 0
    shown = romulus_here("operations", "show", held).out
    assert ("given up because" in shown, "held because" in shown) == (True, False)
    with pytest.raises(romulus.RunFailed, match="OperationAbandoned"):
        finish()


def test_applied_needs_the_result_and_the_code_that_checks_it(held: str) -> None:
    assert resolve("applied", held) == 2
    assert resolve("applied", held, "--value", '"by hand"') == 2


def test_a_value_is_refused_where_nothing_was_applied(held: str) -> None:
    for word in ("not-applied", "give-up"):
        assert resolve(word, held, "--value", '"by hand"') == 2
    assert [item["id"] for item in listed("held")] == [held]


def test_applied_goes_to_the_store_and_namespace_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{tmp_path / 'nobody.db'}")
    there = f"sqlite:///{tmp_path / 'there.db'}"
    engine = romulus.App(there, workflows=[writes], namespace="shop")
    with pytest.raises(romulus.RunHeld):
        engine.run(writes.options(id="w"), "ada")
    named = ("--store", there, "--namespace", "shop")

    assert resolve("applied", SENT[0], "--value", '"by hand"', "--app", f"{__name__}:app", *named) == 0

    assert engine.run(writes.options(id="w"), "ada") == "by hand"
    assert not (tmp_path / "nobody.db").exists()


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


# ---- many at once ----------------------------------------------------------------------------------------


@pytest.fixture
def many(held: str) -> list[str]:
    """The IDs of three operations that wait for a person, oldest first."""
    engine = romulus.App(workflows=[writes])
    for name in ("bob", "eve"):
        SENT.clear()  # the first send of each gets no answer
        with pytest.raises(romulus.RunHeld):
            engine.run(writes.options(id=name), name)
    return [str(item["id"]) for item in listed("held")]


def listed(state: str) -> list[dict[str, object]]:
    items: list[dict[str, object]] = romulus_here("operations", "list", "--state", state, "--json").json["items"]
    return items


def answered(answer: str, *arguments: str) -> tuple[int, str]:
    given = ("operations", "resolve", *arguments, "--reason", "the provider was down", "--reviewer", "ada")
    result = CliRunner().invoke(root, list(given), input=answer)
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def test_all_that_wait_are_resolved_after_a_yes(many: list[str]) -> None:
    code, said = answered("y\n", "give-up", "--all")
    assert code == 0
    assert f"resolve 3 operations (3 write) as give-up: {', '.join(many)}?" in said
    assert "3 operations resolved, 0 were settled meanwhile" in said
    assert [item["id"] for item in listed("abandoned")] == many
    history = romulus_here("operations", "show", many[0], "--json").json["history"]
    assert (history[-1]["who"], history[-1]["detail"]) == ("ada", {"reason": "the provider was down"})


@pytest.mark.parametrize("answer", ["n\n", "", "what\n"])
def test_without_a_yes_none_is_resolved(many: list[str], answer: str) -> None:
    code, said = answered(answer, "give-up", "--name", "write")
    assert (code, "nothing was done" in said) == (1, True)
    assert [item["id"] for item in listed("held")] == many


def test_only_those_that_fit_are_resolved(many: list[str]) -> None:
    second = str(listed("held")[1]["first_sent_at"])
    for nothing in (("--name", "other"), ("--workflow", "other"), ("--all", "--state", "unknown"), ("--since", "2200-01-01T00:00:00Z")):
        assert romulus_here(*given("give-up", *nothing), "--yes", "--json").json == {"resolved": 0, "settled_meanwhile": 0}
    assert romulus_here(*given("give-up", "--until", second), "--yes", "--json").json == {"resolved": 1, "settled_meanwhile": 0}
    assert [item["id"] for item in listed("held")] == many[1:]
    chosen = ("--workflow", "writes", "--name", "write", "--since", second)
    assert romulus_here(*given("not-applied", *chosen), "--yes", "--json").json == {"resolved": 2, "settled_meanwhile": 0}
    assert [item["id"] for item in listed("resend")] == many[1:]


def given(*arguments: str) -> tuple[str, ...]:
    return ("operations", "resolve", *arguments, "--reason", "looked", "--reviewer", "ada")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "name operations, or say which"),
        (("--state", "held"), "name operations, or say which"),
        (("one", "--all"), "not both"),
        (("one", "--state", "held"), "not both"),
        (("--all", "--state", "confirmed"), "what can be resolved is unknown, resend, held"),
    ],
)
def test_a_choice_of_none_or_two_is_wrong_usage(held: str, arguments: tuple[str, ...], complaint: str) -> None:
    said = romulus_here(*given("give-up", *arguments), "--yes")
    assert (said.code, complaint in " ".join(said.err.split())) == (2, True)


@pytest.mark.parametrize("missing", ["--reason", "--reviewer"])
def test_many_are_not_resolved_without_a_reason_and_a_reviewer(held: str, missing: str) -> None:
    other = {"--reason": "--reviewer", "--reviewer": "--reason"}[missing]
    assert romulus_here("operations", "resolve", "give-up", "--all", "--yes", other, "ada").code == 2
    assert romulus_here("operations", "resolve", "give-up", held, other, "ada", missing, " ").code == 2
    assert len(listed("held")) == 1
