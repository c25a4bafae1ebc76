"""Seeds with operations: at most one effect unless the provider knows the key, never one unreported, whatever crashes (promise 6)."""

from __future__ import annotations

from typing import Any

import pytest

from romulus.core import operations
from romulus.testing.simulator.operating import every_crash_of, operating
from romulus.testing.simulator.provider import OPERATIONS, WAYS
from romulus.testing.simulator.seed import Verdict, run_world
from romulus.worker.operations import arming, settling
from tests.simulation.mutants import in_sql

CHUNK = 10
SEEDS = 120
MUTANT_SEEDS = 150
STRIDE = 17  # of the crash points; every one is tried with 1


def run(seed: int) -> Verdict:
    return run_world(f"operations {seed}", seed, operating)


@pytest.mark.parametrize("start", range(0, SEEDS, CHUNK))
def test_no_operation_is_repeated_blindly_and_none_is_lost_unreported(start: int) -> None:
    for seed in range(start, start + CHUNK):
        verdict = run(seed)
        assert verdict.ok, verdict.report()


@pytest.mark.parametrize("way", sorted(set(WAYS)))
@pytest.mark.parametrize("kind", OPERATIONS)
def test_a_crash_at_any_point_neither_repeats_a_write_nor_loses_one(kind: str, way: str) -> None:
    for verdict in every_crash_of(kind, way, stride=STRIDE, first=1 + len(kind + way) % STRIDE):
        assert verdict.ok, verdict.report()


def test_a_seed_replays_exactly() -> None:
    assert run(3).digest == run(3).digest


def _believed_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operations, "believable_at", lambda row: 0)


def _resent_without_a_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operations, "key_has_room", lambda row, now: True)


def _sent_before_it_is_armed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling.Settler, "_send", _blind_send)


async def _blind_send(self: Any, row: Any, spec: Any) -> None:
    await self._operations.report(self._of(row, spec, await self._sent(row, spec, 1 << 62)))


def _unknown_is_queued(patch: pytest.MonkeyPatch) -> None:
    real: Any = arming._known

    def known(driver: Any, command: Any, row: Any) -> None:
        if row.state is operations.OperationState.ARMED:
            row.state = operations.OperationState.QUEUED
        real(driver, command, row)

    patch.setattr(arming, "_known", known)


def _armed_again(patch: pytest.MonkeyPatch) -> None:
    _unknown_is_queued(patch)
    in_sql("", " WHERE operations.state = 'queued'", " WHERE true").apply(patch)


MUTANTS = {
    "not found is believed at once": _believed_at_once,
    "a key is trusted that nobody promised": _resent_without_a_key,
    "a settler sends what it has not armed": _sent_before_it_is_armed,
    "what an earlier claim armed is armed again": _armed_again,
    "an armed operation of a lost claim is left": in_sql("", "NOT EXISTS (SELECT 1 FROM runs r", "EXISTS (SELECT 1 FROM runs r").apply,
    "a settled operation is told to nobody": in_sql("", "?7 FROM runs WHERE key = ?1", "?7 FROM runs WHERE key = -?1").apply,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_guard_taken_out_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(not run(seed).ok for seed in range(MUTANT_SEEDS))
