"""Reads that come together are one statement: a thousand clients wait for their runs."""

from __future__ import annotations

import asyncio

import pytest

from romulus.store.contract import Store
from tests.store.kit import MovableHost, start


@pytest.mark.parametrize("read", ["run", "record"])
async def test_many_runs_read_at_once_take_one_statement_or_two(store: Store, host: MovableHost, read: str) -> None:
    await start(store, *(f"r{n}" for n in range(50)))
    points: list[str] = []

    host.at_point = points.append
    asked = [*(f"r{n}" for n in range(50)), "r0", "nobody"]
    found = await asyncio.gather(*(getattr(store, read)("default", run_id) for run_id in asked))

    ids = [None if each is None else each.id if read == "run" else each.run.id for each in found]
    assert ids == [*asked[:-1], None]
    assert 1 <= points.count(f"read.{read}") <= 2
