"""Every `ROMULUS_*` setting: its variable, meaning and default, in one table; `romulus doctor` prints it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from romulus.core.errors import ConfigurationError
from romulus.worker.settings import SECOND, WorkerSettings

STORE_DEFAULT = "sqlite:///romulus.db"
LEASE_MIN_S = 2
DURATION_MAX_S = 86_400


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable. *field* is the `WorkerSettings` field it sets, where it is one."""

    variable: str
    meaning: str
    default: str
    read: Callable[[str, str], Any]
    field: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """A setting as it applies now."""

    variable: str
    value: str
    source: str  # environment | default
    meaning: str


def _text(value: str, variable: str) -> str:
    return value


def _micros(value: str, variable: str) -> int:
    try:
        seconds = float(value)
    except ValueError:
        raise ConfigurationError(f"{variable} is {value!r}; give a number of seconds") from None
    least = LEASE_MIN_S if variable == "ROMULUS_LEASE" else 0
    if not least <= seconds <= DURATION_MAX_S:
        raise ConfigurationError(f"{variable} is {value!r}; give {least} to {DURATION_MAX_S} seconds")
    return round(seconds * SECOND)


def _days(value: str, variable: str) -> int:
    return _count(value, variable) * 86_400 * SECOND


def _count(value: str, variable: str) -> int:
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:10]) <= 1_000_000:
        raise ConfigurationError(f"{variable} is {value!r}; give a whole number from 1 to 1000000")
    return int(value)


def _switch(value: str, variable: str) -> bool:
    if value not in {"0", "1"}:
        raise ConfigurationError(f"{variable} is {value!r}; give 1 or 0")
    return value == "1"


def _seconds(field: str) -> str:
    return f"{getattr(WorkerSettings(), field) / SECOND:g}"


TABLE = (
    Setting("ROMULUS_STORE", "store URL", STORE_DEFAULT, _text),
    Setting("ROMULUS_NAMESPACE", "namespace of the command line", "default", _text),
    Setting("ROMULUS_CONCURRENCY", "attempts a worker has under way at once", "100", _count),
    Setting("ROMULUS_LEASE", "seconds a claim holds without renewal, at least 2", _seconds("lease"), _micros, "lease"),
    Setting("ROMULUS_GRACE", "seconds attempts may go on after SIGTERM", _seconds("grace"), _micros, "grace"),
    Setting("ROMULUS_CANCEL_GRACE", "seconds a cancelled run may take to clean up", _seconds("cancel_grace"), _micros, "cancel_grace"),
    Setting("ROMULUS_EVENT_RETENTION_DAYS", "days that events are kept, taken by a run or not", "30", _days, "event_retention"),
    Setting("ROMULUS_POLL", "seconds between looks for due work when nothing else wakes a worker", _seconds("poll"), _micros, "poll"),
    Setting("ROMULUS_SWEEP", "seconds between looks for dead workers", _seconds("sweep"), _micros, "sweep"),
    Setting(
        "ROMULUS_ACTIVATION_LIMIT", "seconds workflow code may keep the worker without awaiting", _seconds("activation_limit"),
        _micros, "activation_limit",
    ),
    Setting("ROMULUS_STALL_LIMIT", "seconds a blocked event loop is renewed for", _seconds("stall_limit"), _micros, "stall_limit"),
    Setting("ROMULUS_RUNS_MAX", "runs a worker has in progress at once", str(WorkerSettings().runs_max), _count, "runs_max"),
    Setting("ROMULUS_CACHE_MAX", "runs in memory up to which parked ones stay", str(WorkerSettings().cache_max), _count, "cache_max"),
    Setting("ROMULUS_HISTORY_MAX", "journal entries of a run before it is held", str(WorkerSettings().history_max), _count, "history_max"),
    Setting(
        "ROMULUS_LOOKUPS_PER_SECOND", "lookups of unknown operations that a worker makes at most in a second",
        str(WorkerSettings().lookups_per_second_max), _count, "lookups_per_second_max",
    ),
    Setting(
        "ROMULUS_SETTLING_MAX", "unknown operations that a worker looks up or sends again at once", str(WorkerSettings().settling_max),
        _count, "settling_max",
    ),
    Setting("ROMULUS_DEVELOPMENT", "1: a second interpreter replays each run and compares (development mode)", "0", _switch),
)  # fmt: skip


def value_of(variable: str, environment: Mapping[str, str] | None = None) -> Any:
    """Return a setting's value, checked: from the environment, else its default.

    Raises:
        ConfigurationError: the variable's value is wrong.
    """
    setting = next(setting for setting in TABLE if setting.variable == variable)
    return setting.read(_raw(setting, environment), variable)


def store_url(given: str | None = None) -> str:
    """Return the store's URL: *given*, else ROMULUS_STORE, else a file in the working directory."""
    return given if given is not None else str(value_of("ROMULUS_STORE"))


def worker_settings(environment: Mapping[str, str] | None = None) -> WorkerSettings:
    """Return a worker's settings with what the environment says.

    Raises:
        ConfigurationError: a variable's value is wrong.
    """
    fields = {s.field: s.read(_raw(s, environment), s.variable) for s in TABLE if s.field}
    return replace(WorkerSettings(), **fields)


def in_force(environment: Mapping[str, str] | None = None) -> list[InForce]:
    """Return every setting as it applies now, unchecked."""
    where = os.environ if environment is None else environment
    return [
        InForce(s.variable, _raw(s, environment), "environment" if where.get(s.variable) else "default", s.meaning) for s in TABLE
    ]  # fmt: skip


def _raw(setting: Setting, environment: Mapping[str, str] | None) -> str:
    where = os.environ if environment is None else environment
    return where.get(setting.variable) or setting.default
