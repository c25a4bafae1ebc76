"""The table and the JSON: each figure's median, its ratio to the raw limit of the same run, its target and whether that is reached."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import apsw

from . import peers
from .figure import Benchmark, Figure
from .peers import Peers
from .plan import Plan
from .runner import Measured

HEAD = ["figure", "what", "median", "unit", "of the limit", "target", "reached"]
ANSWER = {True: "yes", False: "NO", None: "not known"}


def figures_of(benchmarks: Sequence[Benchmark], plan: Plan) -> list[Figure]:
    """Return every figure that the benchmarks measure, in order."""
    return [figure for benchmark in benchmarks for figure in benchmark.figures(plan)]


def as_json(benchmarks: Sequence[Benchmark], plan: Plan, runs: int, measured: Measured) -> dict[str, Any]:
    """Return all that was measured and what it was measured on."""
    rows = [_json_row(figure, measured) for figure in figures_of(benchmarks, plan)]
    return {"machine": machine(plan), "runs": runs, "figures": rows, "failures": measured.failures}


def as_text(benchmarks: Sequence[Benchmark], plan: Plan, runs: int, measured: Measured, others: Peers | None) -> str:
    """Return the tables, in Markdown."""
    figures = figures_of(benchmarks, plan)
    about = ", ".join(f"{name} {value}" for name, value in machine(plan).items())
    parts = [f"Medians of {runs} runs. {about}.", markdown(HEAD, [_text_row(figure, measured) for figure in figures])]
    parts += [f"{name} failed: {why}" for name, why in measured.failures.items()]
    if others is not None:
        rows = peers.table(figures, measured.medians, others, number)
        parts += [f"Peers, from {others.source}; ours from this run.", markdown(["figure", "what", "unit", "ours", *others.names], rows)]
    return "\n\n".join(parts)


def machine(plan: Plan) -> dict[str, str]:
    """Return what the figures depend on."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "Python": platform.python_version(), "SQLite": apsw.sqlite_lib_version(),
        "loop": _loop(plan), "cores": str(os.cpu_count()), "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }  # fmt: skip


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines)


def number(value: float) -> str:
    """Return *value* with as many digits as mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _text_row(figure: Figure, measured: Measured) -> list[str]:
    medians = measured.medians
    value = medians.get(figure.key)
    targets = "; ".join(target.text for target in figure.targets)
    if value is None:
        return [figure.key, figure.what, "–", figure.unit, "", targets, "not measured"]
    reached = "; ".join(ANSWER[target.reached(medians, value)] for target in figure.targets)
    return [figure.key, figure.what, number(value), figure.unit, _ratio_text(figure, medians), targets, reached]


def _json_row(figure: Figure, measured: Measured) -> dict[str, Any]:
    medians = measured.medians
    value = medians.get(figure.key)
    targets = [
        {"text": target.text, "reached": None if value is None else target.reached(medians, value)} for target in figure.targets
    ]  # fmt: skip
    return {
        "key": figure.key, "what": figure.what, "unit": figure.unit, "median": value, "samples": measured.samples.get(figure.key, []),
        "limit": figure.limit, "ratio": _ratio(figure, medians), "targets": targets,
    }  # fmt: skip


def _ratio(figure: Figure, medians: dict[str, float]) -> float | None:
    value, limit = medians.get(figure.key), medians.get(figure.limit or "")
    return value / limit if value is not None and limit else None


def _ratio_text(figure: Figure, medians: dict[str, float]) -> str:
    ratio = _ratio(figure, medians)
    return "" if ratio is None else f"{ratio:.2f} × {figure.limit}"


def _loop(plan: Plan) -> str:
    from romulus.app.loops import loop_factory

    return "uvloop" if plan.loop == "auto" and loop_factory() is not None else "asyncio"
