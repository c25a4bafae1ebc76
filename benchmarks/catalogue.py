"""Every benchmark of each store, in the order of the table."""

from __future__ import annotations

from collections.abc import Sequence

from .claiming import CLAIMS
from .figure import Benchmark
from .growth import CHILDREN, FAN_OUT, FLAT
from .latency import W3, W7
from .leasing import RENEWAL
from .limits import DISK, SQLITE
from .operating import UNKNOWN, WRITES
from .parked import SLEEPING, W6
from .plan import POSTGRES
from .recovery import TAKEOVER, W5
from .scale import IDLE, JOURNAL, OUTAGE, WEAR
from .server_limits import SERVER
from .throughput import W1, W2, W4, WORKERS

# The limits are measured always and first: every ratio is to the limits of the same run.
ON_SQLITE = (DISK, SQLITE), (W1, W2, W3, W4, W5, W6, W7, TAKEOVER, SLEEPING, CLAIMS, FLAT, FAN_OUT, CHILDREN, RENEWAL, WRITES, UNKNOWN)
ON_POSTGRES = (DISK, SERVER), (W1, WORKERS, W2, W3, W4, W6, W7, SLEEPING, CHILDREN, WRITES, UNKNOWN, CLAIMS, IDLE, WEAR, JOURNAL, OUTAGE)
BY_NAME = {benchmark.name: benchmark for part in (*ON_SQLITE, *ON_POSTGRES) for benchmark in part}


def of_store(store: str) -> tuple[Sequence[Benchmark], Sequence[Benchmark]]:
    """Return the limits and the workloads that are measured on *store*."""
    return ON_POSTGRES if store == POSTGRES else ON_SQLITE
