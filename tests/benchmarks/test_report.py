"""Targets, ratios and the table."""

from __future__ import annotations

from benchmarks.figure import Benchmark, Figure, at_least, at_least_share, at_most
from benchmarks.plan import Plan
from benchmarks.report import as_json, as_text, number
from benchmarks.runner import Measured

RATE = Figure("rate", "a rate", "/s", "raw", (at_least(100), at_least_share(0.5, "raw", "raw")))
RAW = Figure("raw", "the raw rate", "/s")
BOTH = [Benchmark("both", lambda plan: (RAW, RATE), lambda bench: {})]


def measured(**samples: list[float]) -> Measured:
    return Measured(dict(samples))


def test_a_target_depends_on_the_raw_limit_of_the_same_run() -> None:
    half = at_least_share(0.5, "raw", "raw")

    assert [half.reached({"raw": 200}, value) for value in (99, 100)] == [False, True]


def test_a_target_whose_limit_was_not_measured_is_not_known() -> None:
    assert at_least_share(0.5, "raw", "raw").reached({}, 100) is None


def test_a_bound_from_above_is_kept_by_what_is_below_it() -> None:
    assert [at_most(2).reached({}, value) for value in (1.0, 3.0)] == [True, False]


def test_each_figure_is_the_median_of_its_rounds_with_its_ratio_and_its_targets() -> None:
    row = as_json(BOTH, Plan(), 3, measured(raw=[400, 400, 400], rate=[1, 150, 999]))["figures"][1]

    assert (row["median"], row["ratio"], [target["reached"] for target in row["targets"]]) == (150, 0.375, [True, False])


def test_a_figure_that_could_not_be_measured_keeps_its_row() -> None:
    failed = Measured({"raw": [400]}, {"both": "out of memory"})
    text = as_text(BOTH, Plan(), 1, failed, None)

    assert "not measured" in next(line for line in text.splitlines() if line.startswith("| rate"))
    assert "both failed: out of memory" in text


def test_numbers_are_shown_with_the_digits_that_mean_something() -> None:
    assert [number(value) for value in (12_345.6, 12.345, 0.012345)] == ["12,346", "12.3", "0.0123"]
