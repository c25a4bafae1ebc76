"""What is too large to be stored is told to the code that asked for it; a codec that fails for a moment is no such thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus import Operation
from romulus.core.machine import RunStatus
from tests.worker.rig import world

LARGE = "x" * 5_000


class Stumbles:
    """A codec that fails once for the value that has the word."""

    def __init__(self, word: bytes) -> None:
        self._word: bytes | None = word

    def encode(self, data: bytes) -> bytes:
        if self._word is not None and self._word in data:
            self._word = None
            raise OSError("the key service is away")
        return data

    def decode(self, data: bytes) -> bytes:
        return data


@romulus.operation(timeout=5)
async def writes(op: Operation, text: str) -> str:
    return f"{len(text)} written"


@romulus.workflow
async def repeats(text: str, times: int) -> str:
    return text * times


@romulus.workflow
async def has_it_written(text: str, times: int) -> str:
    try:
        return await writes(text * times)
    except romulus.ValueTooLarge:
        return "too large"


@romulus.workflow
async def has_a_child(text: str, times: int) -> str:
    try:
        return await repeats(text * times, 1)
    except romulus.ValueTooLarge:
        return "too large"


@pytest.mark.parametrize("asks", [has_it_written, has_a_child])
async def test_arguments_that_are_too_large_are_told_to_the_code(tmp_path: Path, asks: romulus.Workflow[[str, int], str]) -> None:
    async with world(tmp_path, has_it_written, has_a_child, repeats, value_max_bytes=2_000) as here:
        await here.worker()
        assert await (await here.client.start(asks, "x", 5_000)).result(timeout=20) == "too large"


@romulus.step
async def opens() -> Any:
    OPENED.append(romulus.current_attempt().number)
    return object()


@romulus.workflow
async def needs_it_open() -> str:
    try:
        await opens()
    except romulus.SerializationError:
        return "cannot be stored"
    return "opened"


OPENED: list[int] = []


async def test_what_a_step_returns_and_cannot_be_stored_fails_it_at_once(tmp_path: Path) -> None:
    OPENED.clear()
    async with world(tmp_path, needs_it_open) as here:
        await here.worker()
        assert await (await here.client.start(needs_it_open)).result(timeout=20) == "cannot be stored"
    assert OPENED == [1]


async def test_a_result_that_is_too_large_fails_the_run(tmp_path: Path) -> None:
    async with world(tmp_path, repeats, value_max_bytes=2_000) as here:
        await here.worker()
        with pytest.raises(romulus.RunFailed, match="the limit of 2,000 bytes"):
            await (await here.client.start(repeats, "x", 5_000)).result(timeout=20)


async def test_a_result_that_the_codec_fails_to_encode_for_a_moment_is_not_lost(tmp_path: Path) -> None:
    async with world(tmp_path, repeats, codec=Stumbles(b"oneone")) as here:
        await here.worker()
        handle = await here.client.start(repeats.options(id="r"), "one", 2)
        held = await here.until("r", RunStatus.HELD, RunStatus.FAILED)
        assert "the key service is away" in (held.hold_reason or "")

        await handle.release()
        assert await handle.result(timeout=20) == "oneone"
