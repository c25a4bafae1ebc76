"""A worker whose disk is full says so, keeps what it could not commit, and goes on once there is room."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import romulus


@romulus.step
async def large() -> str:
    return "x" * 1_000_000


@romulus.workflow
async def stores() -> int:
    return len(await large())


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    while text not in caplog.text:
        await asyncio.sleep(0.01)


async def test_a_full_disk_is_in_the_log_once_and_so_is_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "romulus.worker")
    app = romulus.App(f"sqlite:///{tmp_path / 'runs.db'}", workflows=[stores])
    opened = await app.source.acquire()
    writer = opened.store._writer.session.connection  # type: ignore[attr-defined]
    async with app.worker(), app.client() as client:
        pages = writer.execute("PRAGMA page_count").fetchall()[0][0]
        writer.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall()
        run = await client.start(stores)
        await logged(caplog, "nothing can be committed; what has gathered is kept and tried again")
        writer.execute("PRAGMA max_page_count = 1000000").fetchall()

        assert await run.result(timeout=30) == 1_000_000
        await logged(caplog, "commits succeed again")
    await app.source.release()

    assert caplog.text.count("nothing can be committed") == 1
    assert "the disk is full: free some space" in caplog.text
