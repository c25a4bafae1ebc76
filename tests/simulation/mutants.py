"""Guards taken out of the engine, one at a time: each must be missed by the simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from romulus.core import attempts, calls
from romulus.core.instance import UNSET
from romulus.store.sqlite import advance, apply, beside, changing, claiming, workers
from romulus.store.sqlite.session import Session
from romulus.worker import conclude, deliveries, entries, holding, memory, takeup
from romulus.worker.driver import RunDriver

Apply = Callable[[pytest.MonkeyPatch], None]
matched: set[str] = set()  # replaced texts that were found


@dataclass(frozen=True)
class Mutant:
    """One guard, and how it is taken out."""

    name: str
    apply: Apply
    text: str | None = None  # of the statement that it changes


def sql(old: str, new: str) -> Apply:
    """Replace text in every statement of the store; `matched` tells whether there still is such a statement."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real: Any = Session.run

        def run(self: Session, name: Any, text: Any, bindings: Any = ()) -> Any:
            if old in text:
                matched.add(old)
            return real(self, name, text.replace(old, new), bindings)

        patch.setattr(Session, "run", run)

    return mutate


def in_sql(name: str, old: str, new: str) -> Mutant:
    """Return the mutant that replaces text in the store's statements."""
    return Mutant(name, sql(old, new), old)


def always(value: Any, *places: tuple[Any, str]) -> Apply:
    """Let functions return *value* and do nothing."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for module, name in places:
            patch.setattr(module, name, lambda *args, **more: value)

    return mutate


def _bodies_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    real = RunDriver.submit

    def submit(self: RunDriver, draft: Any, transition: Any) -> None:
        real(self, draft, transition)
        self._begin(draft.arms)
        draft.arms = []

    patch.setattr(RunDriver, "submit", submit)


def _taken_over_unmarked(patch: pytest.MonkeyPatch) -> None:
    real: Any = workers._lost
    patch.setattr(workers, "_lost", lambda session: [*real(session), *(worker.id for worker in workers._over(session))])
    sql("SET dead = 1 WHERE id = ? AND NOT dead AND lease_until = ?", "SET dead = 0 WHERE id = ? AND lease_until = ?")(patch)


def _advance_before_the_outcome(patch: pytest.MonkeyPatch) -> None:
    def record(driver: RunDriver, draft: Any, entry: Any, value: Any = UNSET) -> None:
        driver.instance.deliver(entry, replaying=False, value=value)
        draft.record(entry)
        entries.patches(driver, draft)

    patch.setattr(deliveries, "record", record)


def _claimed_early(patch: pytest.MonkeyPatch) -> None:
    real: Any = claiming._pick
    patch.setattr(claiming, "_pick", lambda session, request, now: real(session, request, now + 5_000_000))


def _one_attempt_more(patch: pytest.MonkeyPatch) -> None:
    real: Any = attempts._why_hold

    def why_hold(retry: Any, *rest: Any) -> Any:
        return real(replace(retry, max_attempts=2) if retry.max_attempts == 1 else retry, *rest)

    patch.setattr(attempts, "_why_hold", why_hold)


def _lost_attempts_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeup, "_lost", lambda driver, draft, record: None)


def _stale_instance(patch: pytest.MonkeyPatch) -> None:
    def parked(self: memory.Memory, run: Any) -> Any:
        return self._parked.pop(run.key, None)

    patch.setattr(memory.Memory, "parked", parked)


def _armed_forgotten_on_hold(patch: pytest.MonkeyPatch) -> None:
    real: Any = holding.held

    def held(driver: RunDriver, *rest: Any) -> Any:
        return replace(real(driver, *rest), armed="")

    patch.setattr(holding, "held", held)


MUTANTS = (
    in_sql("the owner is not compared", "runs.owner = +t.column2 AND ", ""),
    in_sql("the fence is not compared", "runs.fence = +t.column3 AND ", ""),
    in_sql("neither owner nor fence is compared", "runs.owner = +t.column2 AND runs.fence = +t.column3 AND ", ""),
    in_sql("the revision is not compared", "AND runs.revision = +t.column4", ""),
    in_sql("cancel_seq is not compared", "AND (t.column5 IS NULL OR runs.cancel_seq = +t.column5)", ""),
    Mutant("not_before is not compared", always(True, (advance, "is_due"), (apply, "is_due"))),
    in_sql("a claim does not raise the fence", "owner = ?1, fence = max(fence + 1, ?2)", "owner = ?1, fence = fence"),
    in_sql("a takeover does not raise the fence", "owner = NULL, fence = max(fence + 1, ?1)", "owner = NULL, fence = fence"),
    in_sql("a guarded write does not raise the revision", "revision = runs.revision + 1", "revision = runs.revision"),
    Mutant("a body begins before its attempt is recorded", _bodies_before_the_commit),
    Mutant("a worker is taken over without being marked dead", _taken_over_unmarked),
    in_sql("a closed wait does not give its event back", "AND state = 'matched' AND NOT EXISTS", "AND state = 'lost' AND NOT EXISTS"),
    in_sql("a match wakes nobody", "INSERT INTO wakes (run) SELECT value ->> 2 FROM json_each(?)", "SELECT 1 FROM json_each(?) WHERE 0"),
    Mutant("the digest is not compared", always(bytes(8), (calls, "command_digest"))),
    Mutant("a transition sent again is not recognised", always(False, (apply, "was_applied"))),
    Mutant("no evidence is kept", always(None, (apply, "keep"))),
    Mutant("the advance comes before the outcome", _advance_before_the_outcome),
    in_sql("a lost claim is not counted", "losses = losses + 1", "losses = losses"),
    Mutant("a run is claimed before it is due", _claimed_early),
    Mutant("a lost attempt is repeated although only one is allowed", _one_attempt_more),
    Mutant("lost attempts are forgotten", _lost_attempts_forgotten),
    Mutant("an instance is used again although the run was written to", _stale_instance),
    Mutant("a hold forgets what is armed", _armed_forgotten_on_hold),
    Mutant("an open wait is left when its run ends", always(None, (beside, "withdraw_all"), (changing, "withdraw_all"))),
    Mutant("a waiting cancel is overtaken by the end", always(False, (conclude, "_cancel_waits"))),
)
