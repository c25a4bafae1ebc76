"""A seed replays exactly: the same trace again, after other seeds, and under another hash seed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from romulus.testing.simulator.seed import run_seed

SEEDS = (1, 7, 18)
PROGRAM = f"from romulus.testing.simulator.seed import run_seed; print(*(run_seed(seed).digest for seed in {SEEDS}))"


def digests(hash_seed: str) -> list[str]:
    """Return the digests of the seeds in an interpreter of its own."""
    outside = os.environ | {"PYTHONHASHSEED": hash_seed}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=outside, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_a_seed_replays_the_same_trace() -> None:
    first = [run_seed(seed) for seed in SEEDS]
    again = [run_seed(seed) for seed in reversed(SEEDS)]

    assert [verdict.digest for verdict in first] == [verdict.digest for verdict in reversed(again)]
    assert [verdict.lines for verdict in first] == [verdict.lines for verdict in reversed(again)]
    assert len({verdict.digest for verdict in first}) == len(SEEDS)


@pytest.mark.timeout(600)  # nine seeds, six of them in other interpreters: a loaded machine takes its time
def test_a_seed_replays_the_same_trace_whatever_the_hash_seed() -> None:
    here = [run_seed(seed).digest for seed in SEEDS]

    assert digests("0") == here
    assert digests("4242") == here


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_a_seed_replays_the_same_trace_whatever_is_logged_outside(level: int) -> None:
    here = run_seed(SEEDS[1])
    log = logging.getLogger("romulus")
    before = log.level
    log.setLevel(level)
    try:
        assert run_seed(SEEDS[1]).digest == here.digest
        assert log.level == level
    finally:
        log.setLevel(before)
