"""What a client does with runs is tried on both stores, but for what is the client's alone or one store's."""

from __future__ import annotations

import pytest

from tests.client import world

BOTH = ("cancelling", "listing", "results", "sending", "showing", "starting")
# Bodies and waiters by the thousand measure the client, and a file's bytes are SQLite's.
ON_SQLITE_ONLY = ("a_thousand_waiters", "of_a_thousand_runs", "encrypted_values_are_read", "no_store_can_keep")
TRIALS = 60  # of a race on PostgreSQL, whose interleavings are run one by one in tests/postgres


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the test on both stores."""
    name = metafunc.function.__name__
    both = metafunc.module.__name__.rpartition("test_")[2] in BOTH and not any(part in name for part in ON_SQLITE_ONLY)
    metafunc.parametrize("on_store", ["sqlite", "postgres"] if both else ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def on_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let `app_at` use that store."""
    kind: str = request.param
    if kind == "postgres":
        monkeypatch.setattr(world, "database_url", request.getfixturevalue("database").url)
        monkeypatch.setattr("tests.client.test_cancelling.TRIALS", TRIALS)
    return kind
