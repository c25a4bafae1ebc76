"""The simulator's own test: each guard taken out of the engine is missed within a bounded number of seeds."""

from __future__ import annotations

import pytest

from romulus.testing.simulator.seed import run_seed

from .mutants import MUTANTS, Mutant, matched

SEEDS_MAX = 400
BEGIN = {  # where seeds that miss the rare ones are near; all are tried before one counts as not missed
    "the digest is not compared": 80,
    "a waiting cancel is overtaken by the end": 191,
    "an open wait is left when its run ends": 55,
    "a lost attempt is repeated although only one is allowed": 40,
}


@pytest.fixture(params=MUTANTS, ids=lambda mutant: mutant.name)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mutant:
    """The engine without one of its guards."""
    taken_out: Mutant = request.param
    matched.clear()
    taken_out.apply(monkeypatch)
    return taken_out


def test_a_guard_taken_out_is_missed(mutant: Mutant) -> None:
    begin = BEGIN.get(mutant.name, 0)
    verdicts = (run_seed((begin + n) % SEEDS_MAX) for n in range(SEEDS_MAX))

    caught = next((verdict for verdict in verdicts if not verdict.ok), None)

    assert caught is not None, f"{SEEDS_MAX} seeds passed although {mutant.name}"
    assert mutant.text is None or mutant.text in matched, "the store has no such statement any more"


def test_the_engine_as_it_is_passes_the_seeds_that_catch_mutants() -> None:
    for seed in range(20):
        verdict = run_seed(seed)
        assert verdict.ok, verdict.report()
