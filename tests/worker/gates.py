"""Steps that note their calls and wait for the test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import romulus

CALLS: list[Any] = []


class Gate:
    """Where bodies wait until the test lets them go on; shut again before each test."""

    def __init__(self) -> None:
        self.shut()

    def shut(self) -> None:
        self._opened = asyncio.Event()

    def set(self) -> None:
        self._opened.set()

    async def wait(self) -> None:
        await self._opened.wait()


GATE = Gate()


@pytest.fixture(autouse=True)
def fresh() -> None:
    """Forget the calls of the test before, and shut the gate."""
    CALLS.clear()
    GATE.shut()


@romulus.step
async def noted(name: str) -> str:
    CALLS.append(name)
    return name


@romulus.step
async def gated(name: str) -> str:
    CALLS.append(name)
    await GATE.wait()
    return name
