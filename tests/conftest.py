"""What every test stands on: no settings from the environment, all cores for the whole suite, and Hypothesis that repeats itself in CI."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres.fixtures import database, new_database, own_database, own_server_database, postgres_server, shared_database

__all__ = ["database", "new_database", "own_database", "own_server_database", "postgres_server", "shared_database"]

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it for what it starts in the background: every child would too
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Share the whole suite out to the machine's cores (`None`: xdist counts them); named tests run here, where a debugger works."""
    return 0 if config.args_source is pytest.Config.ArgsSource.ARGS else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write lone surrogates, which some tests log, so that a report can go from one process to another."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove ROMULUS_* variables: a test says what it needs."""
    for name in [name for name in os.environ if name.startswith("ROMULUS_")]:
        monkeypatch.delenv(name)
