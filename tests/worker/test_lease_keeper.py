"""The thread that renews a worker's lease: when it stops renewing, what it tells, and what a lost lease allows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from romulus.core.errors import StoreUnavailable
from romulus.core.ports import Host
from romulus.store.contract import Lease
from romulus.worker import WorkerSettings
from romulus.worker.lease import LeaseKeeper

SECOND = 1_000_000
SETTINGS = WorkerSettings()


class Loop:
    """A host whose event loop runs what it is handed when the test says so."""

    def __init__(self) -> None:
        self.at = 1
        self.handed: list[Callable[[], object]] = []

    def monotonic(self) -> int:
        return self.at

    def call_from_thread(self, fn: Callable[[], object]) -> None:
        self.handed.append(fn)

    def runs(self) -> None:
        while self.handed:
            self.handed.pop(0)()


class Renewed:
    """A lease that counts its renewals."""

    def __init__(self) -> None:
        self.times, self.alive = 0, True
        self.error: Exception | None = None

    def renew(self, attempts: Sequence[int] = ()) -> bool:
        self.times += 1
        if self.error is not None:
            raise self.error
        return self.alive

    def remaining(self) -> int:
        return SETTINGS.lease

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def lease() -> Renewed:
    return Renewed()


@pytest.fixture
def lost() -> list[str]:
    return []


@pytest.fixture
def keeper(loop: Loop, lease: Renewed, lost: list[str]) -> Any:
    keeper = LeaseKeeper(cast("Host", loop), cast("Lease", lease), SETTINGS, lambda: lost.append("lost"))
    yield keeper
    keeper.stop()


def test_a_loop_blocked_past_the_stall_limit_is_not_renewed_for_until_it_runs_again(
    keeper: LeaseKeeper, loop: Loop, lease: Renewed
) -> None:
    loop.at += SETTINGS.stall_limit
    keeper.tick()
    assert lease.times == 1
    loop.at += 1
    keeper.tick()
    assert lease.times == 1
    loop.runs()
    keeper.tick()
    assert lease.times == 2


def test_a_blocked_loop_is_reported_once_with_its_stack_and_again_when_it_blocks_again(
    keeper: LeaseKeeper, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    late = SETTINGS.stall_report + SETTINGS.lease // 4
    loop.at += late
    keeper.tick()
    assert caplog.records == []
    loop.at += 1
    keeper.tick()
    keeper.tick()
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "test_a_blocked_loop_is_reported_once" in told.getMessage()
    loop.runs()
    loop.at += late + 1
    keeper.tick()
    assert len(caplog.records) == 2


def test_a_renewal_that_fails_is_told_of_once_until_one_has_succeeded(
    keeper: LeaseKeeper, lease: Renewed, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (StoreUnavailable("away"), StoreUnavailable("away"), None, StoreUnavailable("away"), StoreUnavailable("full")):
        lease.error = error
        keeper.tick()
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"lease not renewed, {SETTINGS.lease / SECOND:.1f} s left: {error}" for error in ("away", "away", "full")]


def test_a_lost_lease_is_told_of_once_and_allows_nothing(keeper: LeaseKeeper, loop: Loop, lease: Renewed, lost: list[str]) -> None:
    assert keeper.safe()
    lease.alive = False
    keeper.tick()
    keeper.tick()
    loop.runs()
    assert (lost, lease.times, keeper.safe()) == (["lost"], 1, False)


def test_a_keeper_that_was_stopped_renews_nothing_and_allows_nothing(keeper: LeaseKeeper, loop: Loop, lease: Renewed) -> None:
    keeper.stop()
    keeper.tick()
    assert (lease.times, loop.handed, keeper.safe()) == (0, [], False)
