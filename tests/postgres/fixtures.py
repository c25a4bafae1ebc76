"""Fixtures of every test that needs PostgreSQL: one server for the session, a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.server import Database, Server, running, without_a_past


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The session's server; tests that stop or restart one start their own."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgres_server: Server) -> Database:
    """One database with our schema in it for the session."""
    return Database(postgres_server, postgres_server.create(postgres_server.template()))


# A run that was only started has its stamp by default; and in a caller's savepoint its row bears another number.
UNSTAMPED = (
    "SELECT id FROM romulus.runs WHERE queue_at IS NOT NULL AND queued_by % 4294967296 <> xmin::text::bigint "
    "AND (revision > 0 OR updated_at > created_at)"
)


@pytest.fixture
def database(shared_database: Database) -> Iterator[Database]:
    """An empty database with our schema in it. After each test: whoever changed a run in its queue has stamped it (`postgres.floors`)."""
    shared_database.empty()
    yield shared_database
    assert shared_database.execute(UNSTAMPED) == [], "a statement that changes a queued run must set queued_by"


@pytest.fixture
def new_database(postgres_server: Server) -> Iterator[Database]:
    """A database with our schema and without a past."""
    with without_a_past(postgres_server) as made:
        yield made


@pytest.fixture
def own_database(postgres_server: Server) -> Iterator[Database]:
    """A database without our schema, for tests that change more than rows."""
    made = Database(postgres_server, postgres_server.create())
    yield made
    made.drop()


@pytest.fixture
def own_server_database() -> Iterator[Database]:
    """A database with our schema on a server of its own, for tests that stop the server."""
    with running() as server:
        yield Database(server, server.create(server.template()))
