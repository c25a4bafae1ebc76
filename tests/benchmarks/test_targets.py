"""What the engine has to reach on each store stands in the table as a target."""

from __future__ import annotations

import pytest

from benchmarks.catalogue import of_store
from benchmarks.plan import POSTGRES, SQLITE, Plan

ON_BOTH = {
    "W3.p50": {"≤ 4 single commits + 1 ms"},
    "W4": {"≥ 50% of L2 single"},
    "W7.p50": {"≤ 3 single commits + 1 ms", "≤ 3 rested ones + 1 ms"},
}
REACHED = {
    SQLITE: ON_BOTH | {"W1": {"≥ 10,000", "≥ 20% of L2 best"}, "W2": {"≥ 3,000"}, "claim.ratio": {"≤ 1.5 ×"}},
    POSTGRES: ON_BOTH | {
        "W1": {"≥ 6,000"}, "workers.ratio": {"≥ 1 ×"}, "W2": {"≥ 2,000"}, "idle": {"≤ 5 %"}, "claim.ratio": {"≤ 1.5 ×"},
        "claim.open_ratio": {"≤ 3 ×"}, "wear.table": {"≤ 2 ×"}, "wear.index": {"≤ 2 ×"},
    },
}  # fmt: skip


@pytest.mark.parametrize("store", [SQLITE, POSTGRES])
def test_what_must_be_reached_on_a_store_is_a_target_of_its_table(store: str) -> None:
    plan = Plan(store=store)
    figures = [figure for part in of_store(store) for benchmark in part for figure in benchmark.figures(plan)]
    targets = {figure.key: {target.text for target in figure.targets} for figure in figures}

    assert {key: targets[key] for key in REACHED[store]} == REACHED[store]
