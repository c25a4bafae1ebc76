"""`python -m romulus.testing.simulator`."""

from __future__ import annotations

import subprocess
import sys


def simulator(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "romulus.testing.simulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_the_command_runs_seeds_and_says_how_many() -> None:
    ran = simulator("--seeds", "3", "--start", "5")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 seeds" in ran.stdout
    assert "broken: none" in ran.stdout


def test_the_command_shows_the_trace_of_a_seed() -> None:
    ran = simulator("--trace", "5")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "run1: created" in ran.stdout
    assert "digest" in ran.stdout


def test_the_command_enumerates_writes_and_says_how_many() -> None:
    ran = simulator("--writes", "100000", "--kind", "blind")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "writes, " in ran.stdout
    assert "broken: none" in ran.stdout


def test_the_command_runs_seeds_with_operations() -> None:
    ran = simulator("--operations", "--seeds", "2")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 seeds" in ran.stdout
