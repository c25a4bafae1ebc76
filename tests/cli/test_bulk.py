"""Many runs at once, after a confirmation; waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import romulus
from romulus.cli.main import root

from .terminal import romulus_here


@romulus.workflow
async def waits(customer: str) -> None:
    await romulus.wait_for_event("paid", correlation_id=customer, timeout=86_400)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROMULUS_STORE", f"sqlite:///{tmp_path / 'runs.db'}")
    for name in ("ada", "bob", "eve"):
        romulus_here("runs", "start", "waits", f'{{"customer": "{name}"}}', "--id", name)
    romulus_here("runs", "start", "other", "--id", "other")


def statuses() -> dict[str, str]:
    return {run["id"]: run["status"] for run in romulus_here("runs", "list", "--json").json["items"]}


def answered(answer: str, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(root, list(arguments), input=answer)
    return result.exit_code, result.stdout + result.stderr


@pytest.mark.parametrize(("verb", "status"), [("cancel", "cancelled"), ("terminate", "terminated")])
def test_live_runs_chosen_by_workflow_are_stopped_after_a_yes(verb: str, status: str) -> None:
    romulus_here("runs", "terminate", "eve")
    code, said = answered("y\n", "runs", verb, "--workflow", "waits", "--reason", "enough")

    assert code == 0
    assert f"{verb} 2 live runs (ada, bob)?" in said
    assert "2 runs asked" in said
    assert statuses() == {"ada": status, "bob": status, "eve": "terminated", "other": "pending"}


@pytest.mark.parametrize("answer", ["n\n", "", "what\n"])
def test_without_a_yes_nothing_is_done(answer: str) -> None:
    code, said = answered(answer, "runs", "cancel", "--all")

    assert code == 1
    assert "nothing was done" in said
    assert set(statuses().values()) == {"pending"}


def test_yes_is_not_asked_and_programs_get_json() -> None:
    said = romulus_here("runs", "terminate", "--all", "--yes", "--json")

    assert (said.code, said.json) == (0, {"asked": 4, "ended_meanwhile": 0})
    assert set(statuses().values()) == {"terminated"}
    assert romulus_here("runs", "cancel", "--all", "--yes", "--json").json == {"asked": 0, "ended_meanwhile": 0}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name a run, or say which runs"),
        (["ada", "--all"], "not both"),
        (["--status", "succeeded"], "give a live status"),
    ],
)
def test_a_choice_that_is_none_or_two_is_refused(arguments: list[str], complaint: str) -> None:
    said = romulus_here("runs", "cancel", *arguments, "--yes")

    assert said.code == 2
    assert complaint in said.err
    assert set(statuses().values()) == {"pending"}


@romulus.workflow
async def never_ends() -> None:
    await asyncio.get_running_loop().create_future()


def hidden(name: str = "time") -> float:
    """The scan at registration does not see which function it is."""
    return float(getattr(time, name)())


@romulus.workflow
async def looks_at_the_clock() -> float:
    return hidden()


def hold(runs: dict[str, str]) -> None:
    """Start runs by their workflow's name and work until all are held."""
    for run, workflow in runs.items():
        romulus_here("runs", "start", workflow, "--id", run)
    app = romulus.App(workflows=[never_ends, looks_at_the_clock])

    async def work() -> None:
        async with app.worker(), app.client() as client:
            for run in runs:
                with pytest.raises(romulus.RunHeld):
                    await client.get(run).result(raise_on_hold=True)

    asyncio.run(work())


@pytest.mark.parametrize(
    ("chosen", "released"),
    [
        (("--because", "TIME.time"), {"clock"}),
        (("--workflow", "never_ends"), {"stuck-1", "stuck-2"}),
        (("--workflow", "never_ends", "--because", "time.time"), set[str]()),
        (("--all",), {"clock", "stuck-1", "stuck-2"}),
    ],
)
def test_held_runs_chosen_are_released_and_no_others(chosen: tuple[str, ...], released: set[str]) -> None:
    """The day the codec's key service was down."""
    held = {"stuck-1": "never_ends", "clock": "looks_at_the_clock", "stuck-2": "never_ends"}
    hold(held)

    told = romulus_here("runs", "release", *chosen, "--yes", "--json")

    assert (told.code, told.json) == (0, {"released": len(released), "not_held_any_more": 0})
    assert {run for run, status in statuses().items() if run in held and status != "held"} == released
    assert statuses()["ada"] == "pending"


def test_the_release_of_many_is_asked_about_first() -> None:
    hold({"stuck-1": "never_ends", "stuck-2": "never_ends"})
    code, said = answered("n\n", "runs", "release", "--all")

    assert code == 1
    assert "release 2 held runs (stuck-1, stuck-2)?" in said
    assert statuses()["stuck-1"] == "held"


def test_a_release_of_none_or_of_one_and_others_is_refused() -> None:
    assert "name a run, or say which runs" in romulus_here("runs", "release").err
    assert "not both" in romulus_here("runs", "release", "ada", "--because", "x").err


def test_waits_lists_what_runs_wait_for_oldest_first() -> None:
    assert "no open waits" in romulus_here("waits").err
    app = romulus.App(workflows=[waits])

    async def work() -> None:
        async with app.worker(), app.client() as client:
            while len(await client.waits()) < 3:
                await asyncio.sleep(0.01)

    asyncio.run(work())
    listed = romulus_here("waits", "--json", "--limit", "2").json
    assert [(wait["name"], wait["correlation_id"]) for wait in listed["items"]] == [("paid", "ada"), ("paid", "bob")]
    rest = romulus_here("waits", "--json", "--after", listed["next"]).json
    assert [wait["run_id"] for wait in rest["items"]] == ["eve"]
    assert "CORRELATION ID" in romulus_here("waits").out
