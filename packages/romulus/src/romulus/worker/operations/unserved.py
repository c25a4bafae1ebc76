"""Unsettled operations that no live worker can settle: held with the reason, and taken up again once one has their code."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from romulus.authoring.registry import Registry
from romulus.core.machine import Change, RunStatus, after
from romulus.core.operations import OperationRow, Report, ReportKind, decide
from romulus.core.record import WorkerRow
from romulus.worker.engine import Engine

log = logging.getLogger("romulus.worker")
REOPENED = after(RunStatus.HELD, Change.RELEASE)
AT_ONCE_MAX = 100  # operations held in one transaction
Served = tuple[str, str, bool]  # pool, name, whether the lookup is there


def served_by(registry: Registry) -> list[tuple[str, bool]]:
    """Return the operations of *registry*, and whether each can be looked up."""
    return [(name, spec.extras.lookup is not None) for name, spec in registry.operations.items()]


class Unserved:
    """Looks for them now and then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._own = [(pool, name, looks) for pool in engine.owner.pools for name, looks in served_by(engine.registry)]
        self._look_at = 0  # host's monotonic µs

    async def look(self, others: Sequence[WorkerRow]) -> None:
        """Hold what is due for too long without any worker that has its code: this one and *others*, who live."""
        engine, patience = self._engine, self._engine.settings.code_patience
        if engine.host.monotonic() < self._look_at:
            return
        served = sorted({*self._own, *(each for row in others for each in _of(row))})
        while True:
            rows = await engine.store.unserved_operations(engine.owner.namespace, served, patience, AT_ONCE_MAX)
            if rows:
                await engine.store.report([self._report(row, served) for row in rows], decide, REOPENED)
            if len(rows) < AT_ONCE_MAX:
                break
        self._look_at = engine.host.monotonic() + patience // 4

    def _report(self, row: OperationRow, served: Sequence[Served]) -> Report:
        why = reason(row, served)
        log.error("operation %s of run %r is held: %s", row.id, row.run_id, why)
        return Report(row.namespace, row.id, ReportKind.NO_CODE, self._engine.owner.id, row.fence, why=why)


def reason(row: OperationRow, served: Sequence[Served]) -> str:
    """Return what is missing, and the remedy."""
    back = "and it goes on by itself"
    if not any(name == row.name for _, name, _ in served):
        return f"no live worker has its function {row.name!r}: deploy the code that has it, {back}"
    if not any((pool, name) == (row.pool, row.name) for pool, name, _ in served):
        return f"no live worker serves its pool {row.pool!r} with the code of {row.name!r}: start one, {back}"
    return f"no live worker has the lookup of {row.name!r} any more: deploy the code that has it, {back}"


def _of(row: WorkerRow) -> list[Served]:
    return [(pool, name, looks) for pool in json.loads(row.pools) for name, looks in json.loads(row.operations)]
