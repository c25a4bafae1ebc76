"""`python -m romulus.testing.simulator`: run many seeds, or one with its trace."""

from __future__ import annotations

import argparse
import sys
import time

from .seed import run_seed


def main() -> int:
    """Run what the command line asks for; 1 if a seed broke."""
    arguments = _arguments()
    if arguments.trace is not None:
        verdict = run_seed(arguments.trace)
        print("\n".join(verdict.lines))
        print(f"digest {verdict.digest}, {verdict.points} crash points, {verdict.steps} callbacks")
        print("ok" if verdict.ok else verdict.report(0))
        return 0 if verdict.ok else 1
    return _many(arguments.start, arguments.seeds, arguments.keep_going)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m romulus.testing.simulator", description="Deterministic simulation of the engine.")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--trace", type=int, default=None, metavar="SEED", help="run one seed and print all that happens")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that broke")
    return parser.parse_args()


def _many(start: int, count: int, keep_going: bool) -> int:
    began, done, points = time.monotonic(), 0, 0
    broken: list[int] = []
    for seed in range(start, start + count):
        verdict = run_seed(seed)
        done, points = done + 1, points + verdict.points
        if not verdict.ok:
            broken.append(seed)
            print(verdict.report(0 if keep_going else 60), flush=True)
            if not keep_going:
                break
    pace = done / (time.monotonic() - began)
    print(f"{done} seeds, {points} crash points, {pace:.1f} seeds/s; broken: {broken or 'none'}")
    return 1 if broken else 0


sys.exit(main())
