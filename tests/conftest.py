"""What every test stands on: no settings from the environment, and Hypothesis that repeats itself in CI."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres.fixtures import database, own_database, own_server_database, postgres_server, shared_database

__all__ = ["database", "own_database", "own_server_database", "postgres_server", "shared_database"]

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove ROMULUS_* variables: a test says what it needs."""
    for name in [name for name in os.environ if name.startswith("ROMULUS_")]:
        monkeypatch.delenv(name)
