"""The simulator's own test: each guard taken out of the engine is missed within a bounded number of seeds."""

from __future__ import annotations

import pytest

from romulus.testing.simulator.seed import run_seed

from .mutants import MUTANTS, Mutant, matched

SEEDS_MAX = 400


@pytest.fixture(params=MUTANTS, ids=lambda mutant: mutant.name)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mutant:
    """The engine without one of its guards."""
    taken_out: Mutant = request.param
    matched.clear()
    taken_out.apply(monkeypatch)
    return taken_out


def test_a_guard_taken_out_is_missed(mutant: Mutant) -> None:
    verdicts = (run_seed(seed) for seed in range(SEEDS_MAX))

    caught = next((verdict for verdict in verdicts if not verdict.ok), None)

    assert caught is not None, f"{SEEDS_MAX} seeds passed although {mutant.name}"
    assert mutant.text is None or mutant.text in matched, "the store has no such statement any more"


def test_the_engine_as_it_is_passes_the_seeds_that_catch_mutants() -> None:
    for seed in range(20):
        verdict = run_seed(seed)
        assert verdict.ok, verdict.report()
