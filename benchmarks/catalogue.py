"""Every benchmark, in the order of the table."""

from __future__ import annotations

from .claiming import CLAIMS
from .figure import Benchmark
from .growth import FAN_OUT, FLAT
from .latency import W3, W7
from .leasing import RENEWAL
from .limits import DISK, SQLITE
from .operating import UNKNOWN, WRITES
from .parked import SLEEPING, W6
from .recovery import TAKEOVER, W5
from .throughput import W1, W2, W4

LIMITS = (DISK, SQLITE)  # always measured: every ratio is to the limits of the same run
WORKLOADS = (W1, W2, W3, W4, W5, W6, W7, TAKEOVER, SLEEPING, CLAIMS, FLAT, FAN_OUT, RENEWAL, WRITES, UNKNOWN)
ALL: tuple[Benchmark, ...] = (*LIMITS, *WORKLOADS)
BY_NAME = {benchmark.name: benchmark for benchmark in ALL}
