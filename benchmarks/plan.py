"""How much work each figure is measured on, and where: handed from the runner to every process of a run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

SQLITE, POSTGRES = "sqlite", "postgres"
REST_S = 0.01  # before each event of W7, and each commit of L2.rested: a machine that has slept is slower in everything


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the workloads. The defaults are those of the issue; `QUICK` only shows that everything runs."""

    store: str = SQLITE  # or POSTGRES
    loop: str = "auto"  # auto: uvloop where it is installed, as `romulus worker` does | asyncio
    batches: int = 3  # measurements in one process; their median is the process's
    concurrency: int = 200
    appends: int = 1_500  # L1
    commits: tuple[tuple[int, int], ...] = ((1, 2_000), (10, 1_500), (100, 600), (1_000, 100))  # L2: (records a commit, commits)
    runs: int = 200  # W1
    steps: int = 10  # W1, in a row in each run
    one_step_runs: int = 1_000  # W2
    single_runs: int = 200  # W3, one at a time
    steps_in_a_row: int = 1_000  # W4
    histories: tuple[int, ...] = (1_000, 10_000)  # W5, completed steps
    parked_runs: int = 10_000  # W6
    events: int = 200  # W7
    sleeping_runs: int = 100_000
    parked_rows: tuple[int, int] = (1_000, 1_000_000)  # claim latency: few, many
    finished_rows: int = 10_000_000  # beside the many, on PostgreSQL
    taken_rows: int = 200_000  # runs claimed and finished while a transaction stays open
    idle_workers: int = 10
    idle_s: float = 30.0
    worn_steps: int = 1_000_000  # before tables and indexes are measured
    journal_rows: int = 10_000_000
    due_rows: int = 1_000_000  # timers that became due while nobody worked
    claims: int = 200
    flat_steps: int = 20_000  # RB-35
    fan_out: int = 10_000  # steps
    children: int = 10_000
    unknown: int = 10_000  # operations
    writers: int = 4  # processes, for lease renewal
    writing_s: float = 20.0
    lease_s: float = 2.0  # the least there is: renewals and takeovers are measured with it


QUICK = Plan(
    batches=1, appends=50, commits=((1, 20), (10, 10), (100, 5), (1_000, 2)), runs=10, steps=3, one_step_runs=20, single_runs=10,
    steps_in_a_row=20, histories=(20, 40), parked_runs=50, events=5, sleeping_runs=100, parked_rows=(10, 1_000), claims=10,
    flat_steps=100, fan_out=50, children=50, unknown=100, writers=2, writing_s=2.0, finished_rows=2_000, taken_rows=200, idle_workers=2,
    idle_s=2.0, worn_steps=100, journal_rows=2_000, due_rows=300,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """What one benchmark is given: its sizes and an empty directory of its own."""

    plan: Plan
    directory: Path
    database: str = ""  # URL of a database of its own, where the store is PostgreSQL

    def url(self, name: str = "bench") -> str:
        """Return the URL of a store: a file in the benchmark's directory, or its database."""
        return self.database or f"sqlite:///{self.directory / name}.db"

    def dump(self) -> str:
        """Return it as a text that another process can load."""
        return json.dumps({"directory": str(self.directory), "database": self.database, **asdict(self.plan)})


def load(text: str) -> Bench:
    """Return what `Bench.dump` has written."""
    fields = json.loads(text)
    directory, database = Path(fields.pop("directory")), fields.pop("database")
    fields["commits"] = tuple((records, commits) for records, commits in fields["commits"])
    fields["histories"], fields["parked_rows"] = tuple(fields["histories"]), tuple(fields["parked_rows"])
    return Bench(Plan(**fields), directory, database)
