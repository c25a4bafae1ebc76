"""How often a failed attempt is tried again, and how long it waits before that."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from .duration import Duration, InvalidSetting, micros


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: *max_attempts* tries in all, exponential waits between them.

    `max_attempts=None` tries for ever. The wait after the n-th failure is `initial * backoff ** (n - 1)`, at most
    `max_delay`, shortened by a random part of up to `jitter` (0 to 1) of itself. Durations are timedeltas or seconds.
    Exceptions of the `non_retryable` classes are not tried again.

    Raises:
        InvalidSetting: a value is out of its range.
    """

    max_attempts: int | None = 3
    initial: Duration = 1.0
    backoff: float = 2.0
    max_delay: Duration = 60.0
    jitter: float = 0.1
    non_retryable: tuple[type[BaseException], ...] = ()
    _initial_us: int = field(init=False, repr=False, compare=False)
    _max_delay_us: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_attempts(self.max_attempts)
        _check_number(self.backoff, "Retry.backoff", 1.0, math.inf)
        _check_number(self.jitter, "Retry.jitter", 0.0, 1.0)
        object.__setattr__(self, "non_retryable", _classes(self.non_retryable))
        object.__setattr__(self, "_initial_us", micros(self.initial, "Retry.initial"))
        object.__setattr__(self, "_max_delay_us", micros(self.max_delay, "Retry.max_delay"))

    def delay(self, failures: int, random01: float) -> int:
        """Return the µs to wait after *failures* failed attempts; *random01* in [0, 1) picks the jitter."""
        return round(self._base(max(failures, 1)) * (1.0 - self.jitter * random01))

    def _base(self, failures: int) -> float:
        if self._initial_us == 0:
            return 0.0
        ceiling = float(self._max_delay_us)
        try:
            return min(ceiling, self._initial_us * self.backoff ** (failures - 1))
        except OverflowError:
            return ceiling


def _check_attempts(value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(f"Retry.max_attempts must be 1 or more, or None to try for ever, got {value!r}")


def _check_number(value: object, name: str, low: float, high: float) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number) or not low <= number <= high:
        bounds = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
        raise InvalidSetting(f"{name} must be a number, {bounds}, got {value!r}")


def _classes(value: object) -> tuple[type[BaseException], ...]:
    given = (value,) if isinstance(value, type) else value
    if not isinstance(given, tuple | list | set | frozenset):
        raise InvalidSetting(f"Retry.non_retryable must be a tuple of exception classes, got {value!r}")
    return tuple(_class(one) for one in cast("Iterable[object]", given))


def _class(value: object) -> type[BaseException]:
    if isinstance(value, type) and issubclass(value, BaseException):
        return value
    raise InvalidSetting(f"Retry.non_retryable must hold exception classes only, got {value!r}")
