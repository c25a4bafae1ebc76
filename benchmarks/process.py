"""One benchmark in a process of its own: prints its samples as one JSON line. Started by `runner`."""

from __future__ import annotations

import cProfile
import json
import sys
from collections.abc import Callable

from .catalogue import BY_NAME
from .figure import Samples
from .plan import Bench, load


def main(name: str, bench: str, profile: str = "") -> None:
    """Measure the benchmark *name*; write a profile of it (for `pstats`) to the file *profile*, if one is named."""
    measure, given = BY_NAME[name].measure, load(bench)
    samples = _profiled(measure, given, profile) if profile else measure(given)
    print(json.dumps(samples), flush=True)


def _profiled(measure: Callable[[Bench], Samples], bench: Bench, file: str) -> Samples:
    profiler = cProfile.Profile()
    samples: Samples = profiler.runcall(measure, bench)
    profiler.dump_stats(file)
    return samples


if __name__ == "__main__":
    main(*sys.argv[1:])
