"""`romulus runs show` of a run whose step failed: which, how often, with what error, and when it is tried again."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.failures import dump_failure
from romulus.core.machine import Change
from romulus.core.record import AttemptRow, HoldKind
from romulus.store import open_store
from tests.client.world import until
from tests.store.kit import HELD, MovableHost, advance, claimed, park

from .terminal import romulus_here


@romulus.step(retry=romulus.Retry(max_attempts=None, initial=600, jitter=0))
async def charge(card: str) -> None:
    raise LookupError(f"no bank knows {card}")


@romulus.workflow
async def pays(card: str) -> None:
    await charge(card)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    monkeypatch.setenv("ROMULUS_STORE", url)
    return url


def pending(run: str) -> tuple[dict[str, Any], str]:
    """What `runs show` says of the one command that a run awaits: as JSON and for people."""
    (command,) = romulus_here("runs", "show", run, "--json").json["pending"]
    *_, line = romulus_here("runs", "show", run).out.splitlines()
    return command, line


def test_a_step_that_backs_off_is_shown_by_name_with_attempt_error_and_due_time() -> None:
    async def until_it_failed() -> None:
        app = romulus.App(workflows=[pays])
        async with app.worker(), app.client() as client:
            handle = await client.start(pays.options(id="p"), "visa")

            async def parked() -> bool:
                return (await handle.describe()).status == "waiting"

            await until(parked)

    asyncio.run(until_it_failed())

    command, line = pending("p")
    assert (command["kind"], command["name"], command["state"], command["attempt"]) == ("step", "charge", "backing off", 1)
    assert command["error"] == "LookupError: no bank knows visa"
    assert command["due"] == romulus_here("runs", "show", "p", "--json").json["due"]
    shown = datetime.fromisoformat(command["due"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert all(word in line for word in ("charge", "backing off", shown, "LookupError: no bank knows visa")), line


def test_a_step_of_a_held_run_is_held_and_due_at_no_time_before_somebody_releases_it(store: str) -> None:
    stored(store, AttemptRow(0, "aa", 2, 2, 0, 5, error(), name="charge"), held=True)

    command, line = pending("r1")
    assert (command["name"], command["state"], command["attempt"], command["due"]) == ("charge", "held", 2, None)
    assert line.split() == ["0", "step", "charge", "held", "2", "LookupError:", "no", "bank"]

    romulus_here("runs", "release", "r1")
    command, line = pending("r1")
    assert (command["state"], command["due"]) == ("backing off", "1970-01-01T00:00:00.000005Z")


def test_a_step_whose_name_an_older_release_did_not_record_is_said_to_have_none(store: str) -> None:
    stored(store, AttemptRow(0, "aa", 2, 2, 0, 5, error()), held=False)

    command, line = pending("r1")
    assert (command["name"], command["attempt"], command["error"]) == ("", 2, "LookupError: no bank")
    assert "0    step  (not recorded)  backing off  2" in line


def error() -> bytes:
    return dump_failure(LookupError("no bank"))


def stored(url: str, row: AttemptRow, *, held: bool) -> None:
    """Store a run that has *row*, parked or held."""

    async def store_it() -> None:
        host = MovableHost()
        store = open_store(url, host)
        await store.open()
        record = await claimed(store, host)
        hold = advance(record, attempts=[row], change=Change.HOLD, status=HELD, hold=(HoldKind.HUNG, "stuck"))
        await store.apply([hold if held else park(record, attempts=[row], wake_at=5)])
        await store.close()
        host.close()

    asyncio.run(store_it())
