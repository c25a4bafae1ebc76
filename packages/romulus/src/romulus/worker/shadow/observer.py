"""What the engine tells of its runs in development mode, and what comes of a difference: an error in the log, and a held run."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from romulus.core.commands import WorkflowSpec
from romulus.core.instance import Instance, RunInfo
from romulus.core.machine import Change
from romulus.core.ports import Host
from romulus.core.record import HoldKind
from romulus.core.seeds import Seeds
from romulus.core.transition import Transition
from romulus.core.values import Vault
from romulus.worker.driver import RunDriver

from .process import SecondInterpreter
from .watched import Watched
from .words import Answer, Broken, Differs, Done, Forget, Lost, Past, Ready, Target, Told, Watch

log = logging.getLogger("romulus.worker")
TOLD = frozenset({Change.ADVANCE, Change.PARK, Change.SUCCEED, Change.FAIL, Change.END_CANCELLED, Change.CONTINUE})


class Shadow:
    """The engine's observer (`engine.Observer`) in development mode. It never raises into a run.

    Args:
        target: where the second interpreter finds the App.
        digests: of the code here, by workflow and version: only the same code is compared.
    """

    def __init__(self, target: Target, digests: Mapping[tuple[str, str], str]) -> None:
        self._target, self._digests = target, digests
        self._other: SecondInterpreter | None = None
        self._life = 0  # of the process that the watched runs were told to
        self._watched: dict[int, Watched] = {}
        self._differing: set[tuple[str, str]] = set()  # workflows whose code is another there
        self._keys = 0
        self.ready = 0  # processes that have imported the App

    async def start(self, host: Host) -> None:
        """Start the second interpreter."""
        self._other = SecondInterpreter(host, self._target, self._hear)
        await self._other.start()

    async def stop(self) -> None:
        """End the second interpreter at once."""
        if self._other is not None:
            await self._other.stop()

    async def settled(self, limit: int) -> None:
        """Wait until all that was committed has been compared, at most *limit* µs."""
        if self._other is not None:
            await self._other.settled(limit)

    @property
    def pid(self) -> int | None:
        """Return the second interpreter's process ID while there is one."""
        return self._other.pid if self._other is not None else None

    @property
    def replayed(self) -> int:
        """Return how many entries the second interpreter has delivered, in all its passes."""
        return self._other.replayed if self._other is not None else 0

    # ---- what the engine says -----------------------------------------------------------------------

    def instance(self, spec: WorkflowSpec, info: RunInfo, arguments: bytes, seeds: Seeds, started_at: int, vault: Vault) -> Instance:
        """Return the instance of a run just taken up: a watched one, if there is anyone to compare it."""
        self._keys += 1
        watch = Watch(self._keys, info, arguments, seeds.dump(), started_at)
        if (info.workflow, info.version) in self._differing or not self._send(watch):
            return Instance(spec, info, arguments, seeds, started_at, vault)
        watched = self._watched[watch.key] = Watched(self, watch.key, spec, info, arguments, seeds, started_at, vault)
        return watched

    def applied(self, driver: RunDriver, transition: Transition) -> None:
        """Tell what became durable, and hold a run that was found to differ meanwhile."""
        watched = driver.instance
        if not isinstance(watched, Watched):
            return
        watched.driver = driver
        if watched.followed and transition.change in TOLD:
            self._tell_committed(watched, transition)
        if watched.difference and transition.change is Change.ADVANCE:
            _hold(watched)

    # ---- what a watched instance says ----------------------------------------------------------------

    def past(self, watched: Watched, past: Past) -> None:
        """Tell what was replayed from the record."""
        self._tell(watched, past)

    def closed(self, watched: Watched) -> None:
        """Forget a run that has left memory."""
        if self._watched.pop(watched.key, None) is not None:
            self._send(Forget(watched.key))

    def _tell_committed(self, watched: Watched, transition: Transition) -> None:
        try:
            watched.tell_past()
            self._tell(watched, watched.committed(transition.entries, parked=transition.change is Change.PARK))
        except Exception:
            log.exception("run %r is not compared from here on", watched.info.id)
            self._drop(watched.key)

    def _tell(self, watched: Watched, told: Told) -> None:
        if watched.followed and not self._send(told) and watched.followed:
            log.warning("run %r is not compared from here on: the second interpreter has too much to do already", watched.info.id)
            self._drop(watched.key)

    def _send(self, told: Told) -> bool:
        other = self._other
        if other is None:
            return False
        if other.pid is None or other.life != self._life:
            self._new_life(other.life)
            if not isinstance(told, Watch):
                return False
        return other.tell(told)

    def _new_life(self, life: int) -> None:
        """The process is gone or another: it knows nothing of the runs that were told to the one before."""
        self._life = life
        for watched in self._watched.values():
            watched.followed = False
        self._watched.clear()

    # ---- what the second interpreter says --------------------------------------------------------------

    def _hear(self, answer: Answer) -> None:
        match answer:
            case Ready():
                self._compare_code(answer.digests)
                self.ready += 1
            case Broken():
                log.warning(
                    "development mode: the second interpreter cannot import %s:%s (%s); runs are not compared",
                    self._target.module, self._target.attribute, answer.reason,
                )  # fmt: skip
            case Differs():
                self._differs(answer)
            case Lost():
                log.warning("run %r: the second interpreter cannot follow it: %s", answer.run_id, answer.reason)
                self._drop(answer.key)
            case Done():
                pass

    def _compare_code(self, digests: Mapping[tuple[str, str], str]) -> None:
        self._differing = {workflow for workflow, digest in self._digests.items() if digests.get(workflow) != digest}
        if self._differing:
            names = ", ".join(sorted({name for name, _ in self._differing}))
            log.warning("development mode: the code of %s has changed since this worker started; restart it to have it compared", names)
        for watched in [each for each in self._watched.values() if (each.info.workflow, each.info.version) in self._differing]:
            self._drop(watched.key)

    def _differs(self, answer: Differs) -> None:
        log.error("run %r: %s", answer.run_id, answer.reason)
        watched = self._watched.get(answer.key)
        if watched is not None and watched.driver is not None:
            watched.difference = answer.reason
            _hold(watched)

    def _drop(self, key: int) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.followed = False
            self._send(Forget(key))


def _hold(watched: Watched) -> None:
    """Hold the run now, or leave that to its next transition: what has not begun is un-armed, so that it does not count as lost."""
    driver = watched.driver
    if driver is None or driver.gone or driver.in_flight is not None or driver.starting:
        return
    for seq in [seq for seq, work in driver.armed.items() if not work.begun]:
        driver.engine.executor.withdraw(driver.armed.pop(seq))
    reason, watched.difference = watched.difference, ""
    driver.hold(HoldKind.CODE, reason)
