"""Fixtures of every test that needs PostgreSQL: one server for the session, a database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.server import Database, Server, running


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The session's server; tests that stop or restart one start their own."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgres_server: Server) -> Database:
    """One database with our schema in it for the session."""
    return Database(postgres_server, postgres_server.create(postgres_server.template()))


@pytest.fixture
def database(shared_database: Database) -> Database:
    """An empty database with our schema in it."""
    shared_database.empty()
    return shared_database


@pytest.fixture
def own_database(postgres_server: Server) -> Iterator[Database]:
    """A database without our schema, for tests that change more than rows."""
    made = Database(postgres_server, postgres_server.create())
    yield made
    made.drop()
