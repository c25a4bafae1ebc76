"""Durations and instants become whole microseconds, and what cannot be one is refused by field."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.duration import DURATION_MAX, InvalidSetting, instant, micros, to_datetime
from romulus.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.5, 500_000),
        (1e-6, 1),
        (0.1 + 0.2, 300_000),
        (timedelta(days=3), 259_200_000_000),
        (timedelta(microseconds=1), 1),
    ],
)
def test_a_duration_is_rounded_to_the_nearest_microsecond(value: timedelta | float, us: int) -> None:
    assert micros(value, "timeout") == us


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -1e-3,
        timedelta(microseconds=-1),
        math.nan,
        math.inf,
        -math.inf,
        True,
        "1",
        None,
        1e300,
        10**30,
        timedelta.max,
        366 * 1000 * 86_400.0 + 1,
    ],
)
def test_what_is_no_duration_is_refused_by_field(value: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^Retry\.initial must"):
        micros(value, "Retry.initial")


def test_the_refusal_is_a_configuration_error_and_a_value_error() -> None:
    assert issubclass(InvalidSetting, ConfigurationError)
    assert issubclass(InvalidSetting, ValueError)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(microseconds=DURATION_MAX)))
def test_a_timedelta_is_kept_exactly(value: timedelta) -> None:
    assert timedelta(microseconds=micros(value, "x")) == value


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.timezones() | st.just(UTC)))
def test_an_aware_instant_comes_back_as_the_same_instant_in_utc(value: datetime) -> None:
    back = to_datetime(instant(value, "start_at"))

    assert back - value.astimezone(UTC) == timedelta(0)
    assert back.tzinfo is UTC


def test_the_second_pass_of_an_hour_that_happens_twice_is_a_later_instant() -> None:
    from zoneinfo import ZoneInfo

    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))

    assert instant(first.replace(fold=1), "x") - instant(first, "x") == 3_600_000_000


@pytest.mark.parametrize("value", [datetime(2024, 1, 1), "2024-01-01", 5])
def test_an_instant_without_a_time_zone_is_refused_by_field(value: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^start_at must"):
        instant(value, "start_at")


@pytest.mark.parametrize(("value", "hours"), [(datetime.max, -12), (datetime.min, 12)])
def test_an_instant_that_is_no_date_in_utc_is_refused_by_field(value: datetime, hours: int) -> None:
    with pytest.raises(InvalidSetting, match=r"^deadline must be within the years 1 to 9999 in UTC"):
        instant(value.replace(tzinfo=timezone(timedelta(hours=hours))), "deadline")

    assert to_datetime(instant(value.replace(tzinfo=UTC), "deadline")) == value.replace(tzinfo=UTC)


def test_an_offset_does_not_move_the_instant() -> None:
    assert instant(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), "x") == 0
