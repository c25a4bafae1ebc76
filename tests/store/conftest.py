"""One fixture for each store: the conformance suite runs on all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from romulus.store import open_store
from romulus.store.contract import Store
from tests.postgres.server import Database
from tests.store.kit import MovableHost


@pytest.fixture
async def host() -> AsyncIterator[MovableHost]:
    host = MovableHost()
    yield host
    host.close()


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, host: MovableHost) -> str:
    """The URL of a new, empty store."""
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        host.moved = database.set_ahead
        return database.url
    return {"sqlite": f"sqlite:///{tmp_path / 'store.db'}", "memory": "sqlite://"}[request.param]


@pytest.fixture
async def store(url: str, host: MovableHost) -> AsyncIterator[Store]:
    store = open_store(url, host)
    await store.open()
    yield store
    await store.close()
