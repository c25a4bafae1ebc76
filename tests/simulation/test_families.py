"""Seeds with children and pools: each child begins, is told of once, and ends as it was started to; no attempt in a pool is lost."""

from __future__ import annotations

from typing import Any

import pytest

from romulus.authoring import children as authored
from romulus.core import children, instance
from romulus.store import asking
from romulus.store.sqlite import beside, changing
from romulus.store.sqlite import children as stored_children
from romulus.testing.simulator.relating import run_family
from romulus.testing.simulator.seed import Verdict
from romulus.worker import family, takeup
from tests.simulation.mutants import Mutant, always, in_sql, matched
from tests.simulation.stories import SECOND, Story, told

CHUNK = 10
SEEDS = 60
MUTANT_SEEDS = 200
LIKELY = (117, 0, 1, 3, 6, 10, 15)  # seeds that have missed one of the guards: they come first


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_families_and_pools_keep_their_promises_whatever_crashes_stalls_or_is_lost(start: int) -> None:
    for seed in range(start, start + CHUNK):
        verdict = run_family(seed)
        assert verdict.ok, verdict.report()


def test_a_seed_replays_exactly() -> None:
    assert run_family(5).digest == run_family(5).digest


def endless() -> Verdict:
    """A workflow that starts itself for ever."""

    async def story(it: Story) -> None:
        await it.worker()
        await it.start(["endless", 0])
        await it.wait(30 * SECOND)

    return told(story)


def _unseeded_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(instance, "child_id", lambda parent, seed, seq: children.child_id(parent, b"the same" * 2, seq))


def _open_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(instance, "child_id", lambda *given: children.child_id(*given).replace("~", "-"))


def _pooled_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeup, "_pooled", lambda driver, draft, record: setattr(driver, "pools", record.pooled))


def _children_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(family, "take_up", lambda driver, draft, record: setattr(driver, "parent", record.parent))


MUTANTS = (
    in_sql("a run parks on what its inbox holds", "OR EXISTS (SELECT 1 FROM inbox i WHERE i.run = runs.key)", ""),
    Mutant("messages that are not there are taken", lambda patch: patch.setattr(beside, "take_messages", _taken_unseen)),
    in_sql("a child's end wakes nobody", "c.child = t.value CROSS JOIN runs p", "c.child = -t.value CROSS JOIN runs p"),
    in_sql("a child is to be terminated and is cancelled", f"coalesce(q.how, {asking.HOW})", "coalesce(q.how, 'cancel')"),
    in_sql("a child is to be cancelled and is terminated", f"coalesce(q.how, {asking.HOW})", "coalesce(q.how, 'terminate')"),
    in_sql("a child is to be let alone and is closed", f"OR {asking.TO_ASK}", "OR true"),
    Mutant("children outlive their parents", always(None, (beside, "leave_children"), (changing, "leave_children"))),
    Mutant("IDs of children are alike in every generation", _unseeded_ids),
    Mutant("IDs of children are not reserved", _open_ids),
    Mutant("a parent taken over forgets its children", _children_forgotten),
    in_sql("a claim of a pool does not raise the fence", "owner = ?5, fence = max(fence + 1, ?6)", "owner = ?5, fence = fence"),
    in_sql(
        "a report's fence is not compared", "WHERE key = ?1 AND fence = ?2 AND owner", "WHERE key = ?1 AND (fence = ?2 OR true) AND owner"
    ),
    in_sql("a report's owner is not compared", "AND fence = ?2 AND owner = ?3", "AND fence = ?2 AND (owner = ?3 OR true)"),
    in_sql("a claim of a pool has no end", "(lease_until <= ?1 OR owner NOT IN", "(lease_until <= ?1 AND owner = '' AND owner NOT IN"),
    in_sql("a report wakes nobody", "INSERT INTO wakes (run) SELECT run FROM pool_attempts", "SELECT run FROM pool_attempts"),
    Mutant("attempts in pools outlive their run", always(None, (beside, "leave_pools"), (changing, "leave_pools"))),
    Mutant("a run taken over forgets its attempts in pools", _pooled_forgotten),
)


def _taken_unseen(session: Any, transitions: Any) -> bool:
    stored_children.take_messages(session, transitions)
    return True


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_guard_taken_out_is_missed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    matched.clear()
    mutant.apply(monkeypatch)

    caught = next((seed for seed in (*LIKELY, *range(MUTANT_SEEDS)) if not run_family(seed).ok), None)

    assert caught is not None, f"{MUTANT_SEEDS} seeds passed although {mutant.name}"
    assert mutant.text is None or mutant.text in matched, "the store has no such statement any more"


def test_a_workflow_that_starts_itself_is_stopped_by_its_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = endless()
    assert verdict.ok, verdict.report()

    monkeypatch.setattr(authored, "DEPTH_MAX", children.DEPTH_MAX + 3)
    assert not endless().ok
