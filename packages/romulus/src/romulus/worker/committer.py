"""Group commit: whatever transitions have gathered are one database transaction, each guarded on its own.

A transition that needs rows which another transaction holds is set aside and tried again beside the others, which go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from romulus.core.errors import CommitUnknown, StoreUnavailable
from romulus.core.ports import Host
from romulus.core.transition import Transition, Verdict
from romulus.store.contract import BatchRejected, Store

from .ending import end
from .pause import pause
from .settings import WorkerSettings

log = logging.getLogger("romulus.worker")

Answer = Callable[[Verdict | BatchRejected], object]
RETRY_MIN = 20_000  # µs
RETRY_MAX = 2_000_000  # µs
LOCKED_TOLD_FROM = 4 * RETRY_MIN  # each try has waited for the rows as well
LOCKED = (
    "%d transitions wait for rows that another transaction holds, the first is of the run with key %d; the others go on; "
    "`romulus doctor` names transactions that are open for long"
)
TOLD_FROM = 1_000_000  # µs between two tries: a store that is only busy has answered by then


@dataclass(slots=True, eq=False)
class Submission:
    """A transition on its way to the store, and whom to tell."""

    transition: Transition
    answer: Answer  # called in a plain callback of the loop


class Committer:
    """Writes transitions in the order they come, as many at once as have gathered."""

    def __init__(self, host: Host, store: Store, settings: WorkerSettings) -> None:
        self._host, self._store, self._settings = host, store, settings
        self._pending: deque[Submission] = deque()
        self._aside: deque[Submission] = deque()  # what needs rows that are locked
        self._unlocking: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = self._host.spawn(self._run(), name="romulus-committer")

    async def stop(self) -> None:
        """Stop at once; what is not written yet stays unwritten."""
        await end([task for task in (self._task, self._unlocking) if task is not None])

    async def drained(self) -> None:
        """Wait until everything submitted has its answer."""
        await self._idle.wait()

    @property
    def backlog(self) -> int:
        """Return how many transitions wait."""
        return len(self._pending) + len(self._aside)

    def submit(self, transition: Transition, answer: Answer) -> None:
        """Queue a transition; *answer* gets its verdict, or BatchRejected if it alone makes the store raise."""
        self._pending.append(Submission(transition, answer))
        if not self._ready.is_set():
            self._ready.set()
            self._idle.clear()

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            batch = self._gather()
            await self._write(batch)
            batch.clear()  # it would keep its runs in memory until the next one
            if not self._pending:
                self._ready.clear()
                self._rest()

    def _rest(self) -> None:
        """Note that everything has its answer, if it has."""
        if not self._ready.is_set() and self._unlocking is None:
            self._idle.set()

    def _gather(self) -> list[Submission]:
        """Take what has gathered, within the bounds of one commit."""
        batch: list[Submission] = []
        size = 0
        while self._pending and len(batch) < self._settings.batch_max and size < self._settings.batch_bytes_max:
            submission = self._pending.popleft()
            size += sum(len(entry.body) for entry in submission.transition.entries)
            batch.append(submission)
        return batch

    async def _write(self, batch: Sequence[Submission]) -> None:
        """Write a batch; on an error of one of its statements halve it until the culprit stands alone."""
        try:
            verdicts = await self._apply([s.transition for s in batch])
        except BatchRejected as error:
            if len(batch) == 1:
                self._host.call_soon(batch[0].answer, error)
                return
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
            return
        for submission, verdict in zip(batch, verdicts, strict=True):
            if verdict is Verdict.LOCKED:
                self._set_aside(submission)
            else:
                self._host.call_soon(submission.answer, verdict)

    # ---- what needs locked rows ------------------------------------------------------------
    def _set_aside(self, submission: Submission) -> None:
        self._aside.append(submission)
        if self._unlocking is None:
            self._unlocking = self._host.spawn(self._unlock(), name="romulus-committer-aside")

    async def _unlock(self) -> None:
        """Try what is set aside again, together and less and less often, until all of it has its answer."""
        wait, told = RETRY_MIN, False
        while self._aside:
            if not told and wait >= LOCKED_TOLD_FROM:
                told = True
                log.warning(LOCKED, len(self._aside), self._aside[0].transition.run)
            await pause(self._host, wait)
            wait = min(wait * 2, RETRY_MAX)
            batch = [self._aside.popleft() for _ in range(min(len(self._aside), self._settings.batch_max))]
            await self._write(batch)
        self._unlocking = None
        self._rest()

    async def _apply(self, transitions: list[Transition]) -> Sequence[Verdict]:
        """Write the batch for certain: again while the store cannot be reached, the same again while its outcome is unknown."""
        wait, told = RETRY_MIN, False
        while True:
            try:
                verdicts = await self._store.apply(transitions)
            except BatchRejected:
                raise
            except (StoreUnavailable, CommitUnknown) as error:
                if not told and wait >= TOLD_FROM:
                    told = True
                    log.warning("nothing can be committed; what has gathered is kept and tried again: %s", error)
                await pause(self._host, wait)
                wait = min(wait * 2, RETRY_MAX)
            except Exception as error:
                log.exception("a batch of %d transitions raised", len(transitions))
                raise BatchRejected(f"{type(error).__name__}: {error}") from error
            else:
                if told:
                    log.info("commits succeed again")
                return verdicts
