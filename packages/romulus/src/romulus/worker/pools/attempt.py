"""One claimed attempt, as the executor sees it: no run is in memory behind it, and its end is reported to the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from romulus.core.attempts import never_again
from romulus.core.commands import Command
from romulus.core.instance import RunInfo
from romulus.core.pools import PoolAttempt, PoolEnd
from romulus.core.record import AttemptRow
from romulus.core.retry import Retry
from romulus.worker.engine import Outcome, TryAgain


@dataclass(slots=True, eq=False, weakref_slot=True)
class PoolWork:
    """A `worker.engine.Body`."""

    attempt: PoolAttempt
    command: Command
    number: int
    row: AttemptRow | None  # with the heartbeat of the attempts before
    info: RunInfo
    seed: bytes
    ended: Callable[[PoolWork, PoolEnd, bytes], object]
    beat: Callable[[PoolWork], object]  # from any thread
    begun: bool = False
    withdrawn: bool = False
    handle: Any = None
    token: Any = None
    heartbeat: bytes = b""
    silenced: BaseException | None = None
    beaten: bool = False  # there was a heartbeat that is not stored yet

    @property
    def run_id(self) -> str:
        """The ID of the run that awaits it."""
        return self.attempt.run_id

    @property
    def fence(self) -> int:
        """The attempt's own."""
        return self.attempt.fence

    @property
    def over(self) -> bool:
        """Return whether nobody waits for its outcome any more."""
        return self.withdrawn

    def beats(self) -> None:
        """Note that its body has sent a heartbeat. From any thread."""
        self.beaten = True
        self.beat(self)

    def after(self, retry: Retry, body: bytes, error: BaseException, now: int, random01: float) -> Outcome | TryAgain:
        """Return the failure: whether it is tried again, the run decides."""
        return Outcome(self, True, body, None if never_again(retry, error) else error)

    def deliver(self, delivery: Outcome | TryAgain) -> None:
        """Report how it ended."""
        assert isinstance(delivery, Outcome)
        self.ended(self, _end(delivery), delivery.body)


def _end(outcome: Outcome) -> PoolEnd:
    if not outcome.failed:
        return PoolEnd.RETURNED
    return PoolEnd.RAISED if isinstance(outcome.value, BaseException) else PoolEnd.FINAL
