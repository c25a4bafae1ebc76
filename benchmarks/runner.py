"""Rounds of benchmarks, each in a fresh process on an empty directory, limits and workloads in turn so that they drift together."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .figure import Benchmark, Samples
from .measures import median
from .plan import Bench, Plan
from .servers import Databases

PATIENCE_S = 3_600.0  # far more than any benchmark takes: it hangs
Say = Callable[[str], object]


@dataclass(slots=True)
class Measured:
    """What a run of the benchmarks has measured."""

    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])  # by figure, one a round
    failures: dict[str, str] = field(default_factory=dict[str, str])  # by benchmark: the last line of what it said

    @property
    def medians(self) -> dict[str, float]:
        """Return the median of each figure."""
        return {key: median(values) for key, values in self.samples.items()}

    def add(self, samples: Samples) -> None:
        """Take in one round's samples."""
        for key, value in samples.items():
            self.samples.setdefault(key, []).append(value)


def measure(
    benchmarks: Sequence[Benchmark], plan: Plan, runs: int, directory: Path, databases: Databases, profiles: Path | None, say: Say
) -> Measured:  # fmt: skip
    """Measure each benchmark *runs* times below *directory*, which nothing is left in, on a database of its own."""
    measured = Measured()
    for number in range(1, runs + 1):
        for benchmark in benchmarks:
            say(f"{number}/{runs} {benchmark.name}")
            try:
                with databases.lend() as database:
                    measured.add(_one(benchmark, plan, directory, database, profiles))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                measured.failures[benchmark.name] = str(error)
                say(f"{benchmark.name} failed: {error}")
    return measured


def _one(benchmark: Benchmark, plan: Plan, directory: Path, database: str, profiles: Path | None) -> Samples:
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=directory) as empty:
        profile = [] if profiles is None else [str(profiles / f"{benchmark.name}.pstats")]
        command = [sys.executable, "-m", "benchmarks.process", benchmark.name, Bench(plan, Path(empty), database).dump(), *profile]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    samples: Samples = json.loads(done.stdout.splitlines()[-1])
    return samples
