"""What all runs in a worker's memory share, and the words they exchange with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from romulus.authoring.registry import Registry
from romulus.core.attempts import after_failure
from romulus.core.commands import Command, WorkflowSpec
from romulus.core.instance import Instance, RunInfo
from romulus.core.operations import Ending
from romulus.core.ports import Host
from romulus.core.record import AttemptRow, Deposit, Message, Record, Run
from romulus.core.retry import Retry
from romulus.core.seeds import Seeds
from romulus.core.transition import Transition
from romulus.core.values import Vault
from romulus.store.contract import Store

from .committer import Committer
from .settings import WorkerSettings
from .slots import Slots
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .driver import RunDriver
    from .executor import Executor
    from .operations import Operations
    from .pools import PoolWorker


class Owner(Protocol):
    """The worker, as its runs see it."""

    id: str  # worker ID: the owner its claims name
    namespace: str
    serves: Sequence[tuple[str, str, str]]  # (workflow, version, digest of the code here)
    pools: tuple[str, ...]
    stopping: bool  # claims and arms nothing any more

    def may_arm(self) -> bool:
        """Return whether the lease lasts long enough to begin something new."""
        ...

    def attempt_over(self) -> None:
        """An attempt of a pool is no longer worked here, or a run no longer given back."""

    def let_go(self, driver: RunDriver) -> None:
        """The run is no longer in progress here: parked, ended, held, freed or lost."""
        ...

    def doubt(self) -> None:
        """What the store holds in this worker's name is not known: give the name up with all that it may own."""
        ...

    def rebuild(self, driver: RunDriver, refused: Transition | None = None) -> None:
        """The run's transition was refused: take it again if it is still ours, and save the outcomes it had."""
        ...

    def reread(self, driver: RunDriver) -> None:
        """Hand the run what its inbox holds beyond what was read."""
        ...

    def hold_from_thread(self, transition: Transition) -> None:
        """Write a held transition from another thread than the loop's, which is stuck."""
        ...

    def has_other_code(self, run: Run, excluded: str) -> bool:
        """Return whether another live worker has code for the run that it has not excluded."""
        ...


class Observer(Protocol):
    """Looks on as runs advance: development mode. It never raises and never keeps a run waiting."""

    async def start(self, host: Host) -> None:
        """The worker starts."""
        ...

    async def stop(self) -> None:
        """The worker has stopped: end at once."""
        ...

    def instance(self, spec: WorkflowSpec, info: RunInfo, arguments: bytes, seeds: Seeds, started_at: int, vault: Vault) -> Instance:
        """Return the instance of a run just taken up."""
        ...

    def applied(self, driver: RunDriver, transition: Transition) -> None:
        """A transition is durable and nothing that it allows has begun. An advancing run may be held here."""
        ...


@dataclass(slots=True)
class Engine:
    """The parts a run needs to make progress."""

    host: Host
    store: Store
    registry: Registry
    settings: WorkerSettings
    owner: Owner
    slots: Slots
    committer: Committer
    watchdog: Watchdog
    observer: Observer | None = None
    executor: Executor = field(init=False)
    operations: Operations = field(init=False)
    pools: PoolWorker = field(init=False)
    _transitions: int = 0

    def next_transition_id(self) -> int:
        """Return 63 bits that no other transition of the run bears: a random base of this worker and a counter."""
        if not self._transitions & 0xFFFF_FFFF:
            self._transitions = self.host.random_bits(31) << 32 | 1
        self._transitions += 1
        return self._transitions

    def random01(self) -> float:
        """Return a random float in [0, 1)."""
        return self.host.random_bits(53) / (1 << 53)


class Body(Protocol):
    """An attempt whose body runs here, as the executor sees it: of a run in memory (`Work`), or claimed from a pool."""

    command: Command
    number: int  # 1 the first
    row: AttemptRow | None  # what earlier attempts left
    begun: bool  # its body has started
    withdrawn: bool  # nobody waits for its outcome any more
    handle: Any  # what the executor cancels
    token: Any  # the user's Attempt
    heartbeat: bytes  # details of its last heartbeat, sealed
    silenced: BaseException | None  # the timeout that is its outcome, whatever its body still does

    @property
    def run_id(self) -> str:
        """The ID of the run that awaits it."""
        ...

    @property
    def info(self) -> RunInfo:
        """What the body may know of that run."""
        ...

    @property
    def fence(self) -> int:
        """The claim it is made under."""
        ...

    @property
    def seed(self) -> bytes:
        """The generation's newest seed."""
        ...

    @property
    def over(self) -> bool:
        """Return whether nobody waits for its outcome any more."""
        ...

    def beats(self) -> None:
        """Note that its body has sent a heartbeat. From any thread."""

    def after(self, retry: Retry, body: bytes, error: BaseException, now: int, random01: float) -> Outcome | TryAgain:
        """Return what follows when its body has raised *error*, sealed as *body*."""
        ...

    def deliver(self, delivery: Outcome | TryAgain) -> None:
        """Say how it ended."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Work:
    """One armed attempt."""

    driver: RunDriver
    command: Command
    number: int  # 1 the first
    row: AttemptRow | None  # what earlier attempts left
    fragment: str  # its place in Run.armed
    begun: bool = False  # its body has started
    withdrawn: bool = False  # nobody waits for its outcome any more
    handle: Any = None  # what the executor cancels
    token: Any = None  # the user's Attempt
    heartbeat: bytes = b""  # details of its last heartbeat, sealed
    silenced: BaseException | None = None  # the timeout that is its outcome, whatever its body still does

    @property
    def run_id(self) -> str:
        """The ID of its run."""
        return self.driver.run.id

    @property
    def info(self) -> RunInfo:
        """What the body may know of the run."""
        return self.driver.instance.info

    @property
    def fence(self) -> int:
        """The run's claim."""
        return self.driver.run.fence

    @property
    def seed(self) -> bytes:
        """The generation's newest seed."""
        return self.driver.instance.seeds.newest

    @property
    def over(self) -> bool:
        """Return whether nobody waits for its outcome any more."""
        return self.withdrawn or self.driver.gone

    def beats(self) -> None:
        """Do nothing: details are stored with the attempt's end."""

    def after(self, retry: Retry, body: bytes, error: BaseException, now: int, random01: float) -> Outcome | TryAgain:
        """Return the next try; the failure, where there is none."""
        command = self.command
        row = after_failure(
            retry, self.row, command.seq, command.digest.hex(), self.number, body, error, now, random01, name=command.name,
        )  # fmt: skip
        if row is None:
            return Outcome(self, True, body, None)
        row.heartbeat = self.heartbeat or row.heartbeat
        return TryAgain(self, row)

    def deliver(self, delivery: Outcome | TryAgain) -> None:
        """Hand the run how it ended."""
        self.driver.arrive(delivery)


@dataclass(slots=True, eq=False)
class Outcome:
    """An attempt's outcome: final."""

    work: Body
    failed: bool
    body: bytes  # sealed
    value: object  # decoded again from the body's plaintext, or the exception


@dataclass(slots=True, eq=False)
class TryAgain:
    """An attempt failed and the command is due again later."""

    work: Body
    row: AttemptRow


@dataclass(slots=True, eq=False)
class OperationEnded:
    """A send of an operation ended, or was not begun."""

    work: Work
    ending: Ending
    body: bytes = b""  # sealed: the result, or the failure
    value: object = None  # decoded again from the body, where it returned
    row: AttemptRow | None = None  # of the next send, where it raised NotSent
    applied: bool = False  # the provider took it, although its result cannot be stored
    report: Callable[[], object] | None = None  # tells the store instead, where the run no longer waits for it


@dataclass(slots=True, eq=False)
class DueNow:
    """A timer, deadline or back-off has come due."""

    due: int  # store µs
    seq: int


@dataclass(slots=True, eq=False)
class EventIn:
    """A wait has been matched."""

    seq: int
    deposit: Deposit


@dataclass(slots=True, eq=False)
class CancelIn:
    """The run was asked to cancel, or ran past its own deadline (name "timeout")."""

    seq: int
    name: str = ""
    reason: str = ""


@dataclass(slots=True, eq=False)
class MessageIn:
    """The run's inbox held a message, or this worker made one itself (key 0)."""

    message: Message


Delivery = Outcome | OperationEnded | TryAgain | DueNow | EventIn | CancelIn | MessageIn

__all__ = [
    "Body", "CancelIn", "Delivery", "DueNow", "Engine", "EventIn", "MessageIn", "OperationEnded", "Outcome", "Owner", "Record",
    "TryAgain", "Work",
]  # fmt: skip
