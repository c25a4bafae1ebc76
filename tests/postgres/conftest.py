"""The host of a store in these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from romulus.store.postgres import PostgresStore
from tests.postgres.kit import opened
from tests.postgres.server import Database
from tests.store.kit import MovableHost


@pytest.fixture
async def host(database: Database) -> AsyncIterator[MovableHost]:
    host = MovableHost()
    host.moved = database.set_ahead
    yield host
    host.close()


@pytest.fixture
async def store(database: Database, host: MovableHost) -> AsyncIterator[PostgresStore]:
    async with opened(database.url, host) as store:
        yield store


@pytest.fixture
async def other(database: Database, host: MovableHost) -> AsyncIterator[PostgresStore]:
    """Another worker's store."""
    async with opened(database.url, host) as other:
        yield other
