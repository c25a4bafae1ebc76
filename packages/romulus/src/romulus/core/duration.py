"""Durations and instants as users write them, turned into the engine's int microseconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from .errors import ConfigurationError

Duration: TypeAlias = timedelta | float  # a timedelta, or seconds

DURATION_MAX = 366 * 1_000 * 86_400 * 1_000_000  # µs, 1,000 years: a longer one is a mistake, and instants must stay in range
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class InvalidSetting(ConfigurationError, ValueError):
    """A setting is out of its range; the message names the field, the value and what is allowed."""


def micros(value: Duration, field: str) -> int:
    """Return *value* (a timedelta, or seconds) in µs, rounded to the nearest.

    Raises:
        InvalidSetting: negative, not finite, over 1,000 years, or not a duration.
    """
    if isinstance(value, timedelta):
        us = value // _MICROSECOND
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidSetting(f"{field} must be a timedelta or a number of seconds, not {type(value).__name__}")
    else:
        us = _seconds(value, field)
    if us < 0:
        raise InvalidSetting(f"{field} must not be negative, got {value!r}")
    if us > DURATION_MAX:
        raise InvalidSetting(f"{field} must not be longer than 1,000 years, got {value!r}")
    return us


def _seconds(value: float, field: str) -> int:
    if isinstance(value, int):
        return value * 1_000_000
    if not math.isfinite(value):
        raise InvalidSetting(f"{field} must be finite, got {value!r}; leave it out where None means no limit")
    return round(value * 1_000_000) if abs(value) < 1e12 else int(value) * 1_000_000


def instant(value: datetime, field: str) -> int:
    """Return the aware *value* in µs since 1970-01-01 UTC.

    Raises:
        InvalidSetting: not a datetime, one without a time zone, or one that in UTC is outside of the years 1 to 9999: nobody could read it.
    """
    if not isinstance(value, datetime):
        raise InvalidSetting(f"{field} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidSetting(f"{field} must have a time zone, got {value!r}; for UTC write datetime(..., tzinfo=timezone.utc)")
    try:
        return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise InvalidSetting(f"{field} must be within the years 1 to 9999 in UTC, got {value!r}") from None


def to_datetime(us: int) -> datetime:
    """Return the instant *us* µs after 1970-01-01 UTC as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=us)
