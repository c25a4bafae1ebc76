"""Every test of the worker runs on each store, but for those that say something of SQLite."""

from __future__ import annotations

import pytest

from tests.worker.rig import World

# Another interpreter or a body that uses SQLite's own connection; PostgreSQL's transactional steps are in tests/postgres.
ON_SQLITE_ONLY = ("shadow", "transactional_step", "deploys")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test on both stores."""
    name = f"{metafunc.module.__name__}.{metafunc.function.__name__}"
    only = any(part in name for part in ON_SQLITE_ONLY)
    metafunc.parametrize("on_store", ["sqlite"] if only else ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def on_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let `world` open that store."""
    kind: str = request.param
    if kind == "postgres":
        monkeypatch.setattr(World, "database_used", request.getfixturevalue("database"))
    return kind
