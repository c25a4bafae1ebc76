"""`python -m benchmarks [W1 W2 …]`: measure, and print the table. Run it from the repository's root."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from . import peers, report
from .catalogue import BY_NAME, of_store
from .figure import Benchmark
from .plan import POSTGRES, QUICK, SQLITE, Plan
from .runner import measure
from .servers import databases


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; return 1 if something could not be measured."""
    options = _parser().parse_args(arguments)
    others = peers.read(options.peers) if options.peers else None
    store = SQLITE if options.store == SQLITE else POSTGRES
    plan = replace(QUICK if options.quick else Plan(), store=store, loop=options.loop)
    benchmarks = _chosen(store, options.names)
    if options.profile:
        options.profile.mkdir(parents=True, exist_ok=True)
    with databases(options.store, options.directory) as lent:
        measured = measure(benchmarks, plan, options.runs, options.directory, lent, options.profile, _say)
    print(report.as_text(benchmarks, plan, options.runs, measured, others))
    if options.json:
        options.json.write_text(json.dumps(report.as_json(benchmarks, plan, options.runs, measured), indent=1), encoding="utf-8")
    return 1 if measured.failures else 0


def _chosen(store: str, names: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks named, all if none is; the limits come always and first."""
    limits, workloads = of_store(store)
    return [*limits, *(benchmark for benchmark in workloads if not names or benchmark.name in names)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="The engine's figures beside the machine's raw limits.")
    parser.add_argument("names", nargs="*", choices=[*BY_NAME, []], metavar="NAME", help=f"all, or some of: {' '.join(BY_NAME)}")
    parser.add_argument(
        "--store",
        default=SQLITE,
        metavar="STORE",
        help="sqlite, postgres (a server of its own below --directory) or a server's postgresql:// URL",
    )
    parser.add_argument("--runs", type=int, default=3, help="rounds, of which the medians are taken")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs, its figures mean nothing")
    parser.add_argument("--loop", choices=["auto", "asyncio"], default="auto", help="event loop; auto is uvloop where it is installed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    parser.add_argument("--peers", type=Path, metavar="FILE", help="result lines of other engines, put beside ours")
    parser.add_argument("--profile", type=Path, metavar="DIRECTORY", help="write a cProfile of each benchmark's process there")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where databases are made: its file system is what is measured")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
