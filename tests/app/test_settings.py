"""Settings: one table, checked where they are read."""

from __future__ import annotations

import pytest

from romulus import ConfigurationError
from romulus.app.settings import TABLE, in_force, store_url, value_of, worker_settings
from romulus.worker.settings import SECOND, WorkerSettings


def test_without_variables_a_worker_has_its_own_defaults() -> None:
    assert worker_settings({}) == WorkerSettings()


def test_variables_change_what_they_name() -> None:
    settings = worker_settings({"ROMULUS_LEASE": "2.5", "ROMULUS_GRACE": "0", "ROMULUS_CACHE_MAX": "7"})

    assert (settings.lease, settings.grace, settings.cache_max) == (2_500_000, 0, 7)
    assert settings.poll == WorkerSettings().poll


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ROMULUS_LEASE", "1"), ("ROMULUS_LEASE", "soon"), ("ROMULUS_GRACE", "-1"), ("ROMULUS_POLL", "nan"), ("ROMULUS_SWEEP", "inf"),
        ("ROMULUS_RUNS_MAX", "0"), ("ROMULUS_CACHE_MAX", "1.5"), ("ROMULUS_HISTORY_MAX", "９"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_the_variables_name(variable: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=variable):
        worker_settings({variable: value})


def test_a_store_is_the_argument_else_the_variable_else_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_url() == "sqlite:///romulus.db"
    monkeypatch.setenv("ROMULUS_STORE", "sqlite:///b.db")
    assert (store_url(), store_url("sqlite:///a.db")) == ("sqlite:///b.db", "sqlite:///a.db")


def test_every_setting_is_listed_with_where_its_value_comes_from() -> None:
    listed = in_force({"ROMULUS_LEASE": "3"})

    assert [setting.variable for setting in listed] == [setting.variable for setting in TABLE]
    assert {s.variable: s.source for s in listed if s.source != "default"} == {"ROMULUS_LEASE": "environment"}
    assert next(s.value for s in listed if s.variable == "ROMULUS_LEASE") == "3"
    assert value_of("ROMULUS_LEASE", {}) == WorkerSettings().lease >= 2 * SECOND
