"""Small machines, enumerated: a crash at every crash point there is."""

from __future__ import annotations

import pytest

from romulus.testing.simulator.programs import TINY
from romulus.testing.simulator.tiny import every_crash, every_pair, run_tiny


@pytest.mark.parametrize("name", TINY)
def test_a_crash_at_any_point_loses_nothing_and_repeats_nothing(name: str) -> None:
    for verdict in every_crash(name):
        assert verdict.ok, verdict.report()


def test_two_crashes_at_any_points_lose_nothing() -> None:
    for verdict in every_pair("two steps", stride=15):
        assert verdict.ok, verdict.report()


def test_the_points_of_a_run_lie_before_and_after_each_statement() -> None:
    alone = run_tiny("two steps")

    assert alone.ok, alone.report()
    assert alone.points > 100
