"""Every test of the worker runs on each store, but for those that say something of SQLite."""

from __future__ import annotations

import pytest

from tests.worker.rig import World

# A body that uses SQLite's own connection; another interpreter, which never sees the store: one test that holds a run and one with
# operations show that what the worker does about it is stored on PostgreSQL too.
ON_SQLITE_ONLY = ("an_apsw_connection", "def_transactional_step_past_its_timeout", "shadow")
ON_BOTH_THOUGH = ("that_was_held_goes_on", "operations_are_followed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test on both stores."""
    name = f"{metafunc.module.__name__}.{metafunc.function.__name__}"
    only = any(part in name for part in ON_SQLITE_ONLY) and not any(part in name for part in ON_BOTH_THOUGH)
    metafunc.parametrize("on_store", ["sqlite"] if only else ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def on_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let `world` open that store."""
    kind: str = request.param
    if kind == "postgres":
        monkeypatch.setattr(World, "database_used", request.getfixturevalue("database"))
    return kind
