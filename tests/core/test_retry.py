"""A retry policy waits longer each time, within bounds that hold at any number of failures."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from romulus.core.duration import InvalidSetting
from romulus.core.retry import Retry

POLICIES = st.builds(
    Retry,
    max_attempts=st.none() | st.integers(1, 10**9),
    initial=st.floats(0, 1e6) | st.timedeltas(timedelta(0), timedelta(days=30)),
    backoff=st.floats(1, 1e300),
    max_delay=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
)
DRAWS = st.floats(0, 1, exclude_max=True)


@given(POLICIES, st.integers(1, 10**6), DRAWS)
def test_a_wait_is_never_negative_and_never_over_the_maximum(policy: Retry, failures: int, draw: float) -> None:
    most = round(dataclasses.replace(policy, jitter=0.0).delay(failures, 0.0))

    assert 0 <= policy.delay(failures, draw) <= most <= round(float(policy.max_delay) * 1_000_000)  # type: ignore[arg-type]
    assert policy.delay(failures, draw) >= math.floor(most * (1 - policy.jitter))


@given(POLICIES, st.integers(1, 10**6), DRAWS)
def test_a_later_wait_is_never_shorter_for_the_same_draw(policy: Retry, failures: int, draw: float) -> None:
    assert policy.delay(failures, draw) <= policy.delay(failures + 1, draw)


def test_waits_double_from_the_initial_one_up_to_the_maximum() -> None:
    policy = Retry(initial=timedelta(seconds=1), max_delay=10, jitter=0)

    assert [policy.delay(n, 0.5) // 1_000_000 for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_jitter_shortens_a_wait_by_up_to_its_part() -> None:
    policy = Retry(initial=10, jitter=0.5)

    assert (policy.delay(1, 0.0), policy.delay(1, 0.5), policy.delay(1, 0.999999)) == (10_000_000, 7_500_000, 5_000_005)


def test_a_millionth_failure_waits_the_maximum() -> None:
    assert Retry(jitter=0, backoff=1e300).delay(10**6, 0) == 60_000_000
    assert Retry(jitter=0, initial=0).delay(10**6, 0) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_attempts", value) for value in (0, -1, 1.5, True, "3")),
        *(("initial", value) for value in (-1, math.nan, math.inf, None, True)),
        *(("max_delay", value) for value in (-1, math.nan, "x")),
        *(("backoff", value) for value in (0.5, 0, math.inf, math.nan, None, True)),
        *(("jitter", value) for value in (-0.1, 1.1, math.nan, "x")),
        *(("non_retryable", value) for value in (("ValueError",), 5, (int,), [ValueError()])),
    ],
)
def test_a_value_out_of_range_is_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=rf"Retry\.{field} must"):
        Retry(**{field: value})


def test_none_tries_for_ever_and_one_is_allowed() -> None:
    assert Retry(max_attempts=None).max_attempts is None
    assert Retry(max_attempts=1).max_attempts == 1


def test_a_policy_cannot_be_changed_and_equal_ones_are_equal() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Retry().max_attempts = 5  # type: ignore[misc]
    assert Retry() == Retry(3, 1.0, 2.0, 60.0, 0.1, ())
    assert hash(Retry(initial=2)) == hash(Retry(initial=2))
    assert dataclasses.replace(Retry(), initial=2.0).delay(1, 0.0) == 2_000_000


def test_one_class_or_a_list_of_classes_may_be_given_as_not_retryable() -> None:
    assert Retry(non_retryable=ValueError).non_retryable == (ValueError,)  # type: ignore[arg-type]
    assert Retry(non_retryable=[ValueError, KeyError]).non_retryable == (ValueError, KeyError)  # type: ignore[arg-type]
