"""Runs that the store says are this worker's and that nobody here holds: the answer to a claim was lost on the way, or what followed it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from romulus.store.contract import Owned

from .claiming import Claimer
from .engine import Engine
from .salvage import outcomes_alone

log = logging.getLogger("romulus.worker")

Claim: TypeAlias = tuple[int, int]  # Run.key, fence


class Strays:
    """Gives such runs back: while this worker lives nobody else would ever take them up."""

    def __init__(self, engine: Engine, claimer: Claimer, held: Callable[[int], bool]) -> None:
        self._engine, self._claimer, self._held = engine, claimer, held
        self.leaving: set[int] = set()  # keys of runs whose return is not answered yet
        self._seen: dict[Claim, int] = {}  # to the number of the claimer's looks that had begun by then

    async def look(self) -> None:
        """Give back what was seen before as well, with no look of the claimer still under way that may have claimed it."""
        found = await self._unheld()
        before, looks = self._seen, self._claimer.begun
        self._seen = {(run.key, run.fence): before.get((run.key, run.fence), looks) for run in found}
        for run in found:
            if before.get((run.key, run.fence), looks + 1) <= self._claimer.ended:
                await self._give_back(run)

    async def clear(self) -> None:
        """Give back all of them. Nothing is claimed any more."""
        for run in await self._unheld():
            await self._give_back(run)

    async def _unheld(self) -> list[Owned]:
        owned = await self._engine.store.owned(self._engine.owner.id)
        return [run for run in owned if not self._held(run.key)]

    async def _give_back(self, run: Owned) -> None:
        """Free a run under the claim that was seen, by an ordinary transition: its guards see to it that nothing else is touched."""
        engine = self._engine
        record = await engine.store.record(run.namespace, run.id)
        if record is None or (record.run.owner, record.run.fence) != (engine.owner.id, run.fence) or self._held(run.key):
            return
        freed = outcomes_alone(engine, (), record, leaves=True)
        assert freed is not None
        log.warning("run %r was claimed by this worker and is held by nobody in it: it is given back", run.id)
        self.leaving.add(run.key)
        engine.committer.submit(freed, lambda _: self._left(run.key))

    def _left(self, run: int) -> None:
        """Note that the store has answered: what it refused is looked at again."""
        self.leaving.discard(run)
        self._engine.owner.attempt_over()
