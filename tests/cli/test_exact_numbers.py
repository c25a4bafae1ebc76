"""RB-60: a number shows the digits it was given with, wherever it is shown, on both stores."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

import romulus
from tests.postgres.server import Database

from .terminal import romulus_here

LARGE, LONG = "3544790567247868102", "0.2345678901234568"


@romulus.step
async def kept(amount: int, rate: float, price: Decimal) -> tuple[int, float, Decimal]:
    return amount, rate, price


@romulus.workflow
async def priced(amount: int, rate: float, price: Decimal) -> tuple[int, float, Decimal]:
    romulus.set_attributes(doubled=2 * amount)
    return await kept(amount, rate, price)


@pytest.fixture(autouse=True, params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        url = database.url
    else:
        url = f"sqlite:///{tmp_path / 'runs.db'}"
    monkeypatch.setenv("ROMULUS_STORE", url)
    return url


def test_large_integers_and_long_decimals_are_shown_digit_for_digit() -> None:
    arguments = f'{{"amount": {LARGE}, "rate": {LONG}, "price": "{LARGE}.{LONG[2:]}"}}'
    assert romulus_here("runs", "start", "priced", arguments, "--id", "p").code == 0

    async def work() -> None:
        app = romulus.App(workflows=[priced])
        async with app.worker(), app.client() as client:
            assert await client.get("p").result(timeout=60) == (int(LARGE), float(LONG), Decimal(f"{LARGE}.{LONG[2:]}"))

    asyncio.run(work())
    for command in (("runs", "show", "p"), ("runs", "show", "p", "--json"), ("runs", "history", "p", "--json")):
        shown = romulus_here(*command).out
        assert LONG in shown, command
        assert f'"{LARGE}.{LONG[2:]}"' in shown, command
        assert LARGE in shown.replace(f"{LARGE}.", ""), command
    described = romulus_here("runs", "show", "p", "--json").json
    assert described["attributes"] == {"doubled": 2 * int(LARGE)}
    assert str(2 * int(LARGE)) in romulus_here("runs", "show", "p").out
    for value, found in ((2 * int(LARGE), ["p"]), (2 * int(LARGE) + 1, [])):
        assert [run["id"] for run in romulus_here("runs", "list", "--attribute", f"doubled={value}", "--json").json["items"]] == found
