"""The runs a worker holds in memory: those in progress, and a bounded number of parked ones for when they wake."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from romulus.core.machine import RunStatus
from romulus.core.record import Run

from .driver import RunDriver

State: TypeAlias = tuple[int, int, int]


class Memory:
    """Runs in progress by key, and the most recently parked ones."""

    def __init__(self, cache_max: int) -> None:
        self.active: dict[int, RunDriver] = {}
        self.left = 0  # runs that were in progress and no longer are
        self._cache_max = cache_max
        self._parked: OrderedDict[int, tuple[RunDriver, State]] = OrderedDict()

    def enter(self, driver: RunDriver) -> None:
        """Take note of a run in progress."""
        self.active[driver.run.key] = driver

    def leave(self, driver: RunDriver) -> None:
        """Forget a run that is no longer in progress, or keep it while it is parked.

        It may have been claimed again before its parking was answered: then another driver has it, and this one is of no further use.
        """
        key = driver.run.key
        other = self.active.get(key)
        if other is driver:
            del self.active[key]
            self.left += 1
        if driver.run.status is RunStatus.WAITING and self._cache_max and other in (driver, None):
            self._parked[key] = driver, _state(driver.run)
            driver.rest()
            while self._parked and len(self._parked) + len(self.active) > self._cache_max:
                self._parked.popitem(last=False)[1][0].instance.close()
        else:
            driver.instance.close()

    def parked(self, run: Run) -> RunDriver | None:
        """Return the parked driver of a run, under its new claim, if nothing has written to the run since; otherwise close it."""
        driver, state = self._parked.pop(run.key, (None, None))
        if driver is None:
            return None
        if state == _state(run):
            driver.resume(run)
            return driver
        driver.instance.close()
        return None

    def drivers(self) -> list[RunDriver]:
        """Return all of them, those in progress first."""
        return [*self.active.values(), *(driver for driver, _ in self._parked.values())]

    def clear(self) -> None:
        """Drop everything: nothing more is done in these runs' names."""
        for driver in self.drivers():
            driver.gone = False
            driver.drop()
        self.active.clear()
        self._parked.clear()

    @property
    def bytes(self) -> int:
        """Return about how many journal bytes the runs in progress hold."""
        return sum(driver.bytes for driver in self.active.values())

    @property
    def cached(self) -> int:
        """Return how many parked runs are kept."""
        return len(self._parked)


def _state(run: Run) -> State:
    """Return what is another once anything was written to a run. After a failover that lost commits its row, or its key, may be one
    that has come as far in another way: only the transition's random ID tells.
    """
    return run.revision, run.generation_key, run.last_transition
