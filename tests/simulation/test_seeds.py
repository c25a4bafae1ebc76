"""A few hundred seeds: whatever crashes, stalls or is lost, the guarantees of DESIGN 9 hold after every commit and at the end."""

from __future__ import annotations

import pytest

from romulus.testing.simulator.seed import run_seed

CHUNK = 10
SEEDS = 300


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_the_guarantees_hold_whatever_crashes_stalls_or_is_lost(start: int) -> None:
    for seed in range(start, start + CHUNK):
        verdict = run_seed(seed)
        assert verdict.ok, verdict.report()
