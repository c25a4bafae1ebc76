"""`python -m romulus.testing.simulator`: run many seeds, one with its trace, or a write with a crash and a stop at every statement."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

from .operating import run_operating
from .provider import OPERATIONS
from .seed import Verdict, run_seed
from .writes import BEHAVIOURS, STOPS, every_crash_of, every_frozen_send_of, every_stop_of

FROZEN_STEP = 100_000  # µs


def main() -> int:
    """Run what the command line asks for; 1 if a seed broke."""
    arguments = _arguments()
    run: Callable[[int], Verdict] = run_operating if arguments.operations else run_seed
    if arguments.trace is not None:
        verdict = run(arguments.trace)
        print("\n".join(verdict.lines))
        print(f"digest {verdict.digest}, {verdict.points} crash points, {verdict.steps} callbacks")
        print("ok" if verdict.ok else verdict.report(0))
        return 0 if verdict.ok else 1
    if arguments.writes is not None:
        return _many(_writes(arguments.writes, arguments.kind), "writes", arguments.keep_going)
    return _many((run(seed) for seed in range(arguments.start, arguments.start + arguments.seeds)), "seeds", arguments.keep_going)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m romulus.testing.simulator", description="Deterministic simulation of the engine.")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--operations", action="store_true", help="seeds whose programs write to a provider")
    parser.add_argument(
        "--writes", type=int, default=None, metavar="STRIDE",
        help="instead: one write of each ability and behaviour, with a crash and with a stop at every STRIDE-th crash point; 1 is all",
    )  # fmt: skip
    parser.add_argument("--kind", choices=tuple(OPERATIONS), default=None, help="with --writes: of this ability only")
    parser.add_argument("--trace", type=int, default=None, metavar="SEED", help="run one seed and print all that happens")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that broke")
    return parser.parse_args()


def _writes(stride: int, only: str | None) -> Iterator[Verdict]:
    for kind in OPERATIONS if only is None else (only,):
        for behaviour in BEHAVIOURS:
            yield from every_crash_of(kind, behaviour, stride)
            yield from every_frozen_send_of(kind, behaviour, stride * FROZEN_STEP)
            for duration in STOPS:
                yield from every_stop_of(kind, behaviour, duration, stride)


def _many(verdicts: Iterator[Verdict], what: str, keep_going: bool) -> int:
    began, done, points = time.monotonic(), 0, 0
    broken: list[str] = []
    for verdict in verdicts:
        done, points = done + 1, points + verdict.points
        if not verdict.ok:
            broken.append(verdict.name)
            print(verdict.report(0 if keep_going else 60), flush=True)
            if not keep_going:
                break
    pace = done / (time.monotonic() - began)
    print(f"{done} {what}, {points} crash points, {pace:.1f} {what}/s; broken: {broken or 'none'}")
    return 1 if broken else 0


sys.exit(main())
