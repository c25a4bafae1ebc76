"""Reads that come together are one statement: a thousand clients wait for their runs."""

from __future__ import annotations

import asyncio

import pytest

from romulus.store.contract import Store
from tests.store.kit import MovableHost, start


@pytest.mark.parametrize("read", ["statuses", "record"])
async def test_many_runs_read_at_once_take_one_statement_or_two(store: Store, host: MovableHost, read: str) -> None:
    await start(store, *(f"r{n}" for n in range(50)))
    points: list[str] = []

    async def found(run_id: str) -> str | None:
        if read == "record":
            record = await store.record("default", run_id)
            return None if record is None else record.run.id
        (run_id,) = await store.statuses("default", [run_id]) or [""]
        return run_id or None

    host.at_point = points.append
    asked = [*(f"r{n}" for n in range(50)), "r0", "nobody"]
    ids = await asyncio.gather(*(found(run_id) for run_id in asked))

    assert ids == [*asked[:-1], None]
    assert 1 <= points.count(f"read.{read}") <= 2
