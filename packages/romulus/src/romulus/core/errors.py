"""Every error Romulus raises, by what the caller may do about it.

RomulusError
├── NotInRun                 called outside a run: call it from workflow or step code
├── WrongColour              def called as async or the other way round: the message names the spelling
├── RunFailed                the run ended failed; `__cause__` is what its code raised
├── RunCancelled             the run ended cancelled
├── RunTerminated            the run was terminated
├── RunHeld                  the run waits for a person; `hold_reason` says why
├── RunConflict              the ID belongs to another run; nothing was changed
├── RunNotFound              no such run here
├── StepFailed               a step's exception that cannot be rebuilt as its own class
│   └── StepTimeout          a step's attempt ran past its timeout (also a TimeoutError)
├── ChildFailed              a child did not succeed; `__cause__` is what ended it
├── CleanUpTimeout           a cancelled run did not end in the time it has for that
├── CleanUpFailed            a run was cancelled while it was held, and its code could not clean up
├── TooDeep                  children of children, deeper than a run may start them
├── OperationRejected        the provider refused the operation; nothing was applied
├── OperationAbandoned       a reviewer gave up: whether it was applied is not known
├── NotSent                  raised by an operation's body: the request never left
├── Rejected                 raised by an operation's body: the provider refused it
├── OperationNotFound        no such operation here
├── CallbackRefused          a callback's signature does not fit, or it is old: nothing was kept
├── OperationConflict        the operation is settled, or not open to this; nothing was changed
├── WaitTimeout              no event came in time (also a TimeoutError)
├── EventConflict            the event ID was used before with another body; nothing was stored
├── TooManyEvents            no more events of that name and correlation ID may wait; nothing was stored
├── SerializationError       a value cannot be stored and restored unchanged
│   └── ValueTooLarge        a value is over `value_max_bytes`
├── DefinitionError          a workflow, step or App is declared wrongly
│   ├── NotDeterministic     workflow code calls what replays cannot repeat
│   └── UnknownWorkflow      no workflow of that name and version here
├── NondeterminismRefused    the same, caught while the run advances: put it in a step
├── ConfigurationError       a setting or store URL is wrong
├── StoreError
│   ├── StoreUnavailable     nothing was committed: try again
│   ├── CommitUnknown        the commit may or may not have been applied: resubmit the same transition
│   ├── StoreSchemaError     the store's schema is not the one this release works with
│   └── NotOurFile           the file is not a Romulus store: it was left untouched
├── ClaimLost                another worker has the run: stop, touch nothing
├── IllegalTransition        the run's status does not accept the change
├── Mismatch                 the code asked for something else than the record holds
└── Undecodable              a stored value cannot be decoded by the code that is here

Private to the engine, below BaseException so that no broad `except` keeps them:

Dropped                      thrown into an instance that is being closed
ActivationTimeout            thrown into an activation that does not end
"""

from __future__ import annotations


class RomulusError(Exception):
    """Base of every error Romulus raises to its users."""


class NotInRun(RomulusError):
    """Called outside a run."""


class WrongColour(RomulusError, TypeError):
    """A `def` function was called as if it were `async def`, or the other way round."""


class RunFailed(RomulusError):
    """The run ended failed; `__cause__` is what its code raised, where it can be rebuilt."""

    def __init__(self, run_id: str, error: str) -> None:
        super().__init__(f"run {run_id!r} failed: {error}")
        self.run_id, self.error = run_id, error


class RunCancelled(RomulusError):
    """The run ended cancelled."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id, self.reason = run_id, reason


class RunTerminated(RomulusError):
    """The run was terminated: stopped at once, its clean-up code did not run."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        super().__init__(f"run {run_id!r} was terminated" + (f": {reason}" if reason else ""))
        self.run_id, self.reason = run_id, reason


class RunHeld(RomulusError):
    """The run waits for a person; `hold_reason` says why and what to do."""

    def __init__(self, run_id: str, hold_reason: str) -> None:
        super().__init__(f"run {run_id!r} is held: {hold_reason}")
        self.run_id, self.hold_reason = run_id, hold_reason


class RunConflict(RomulusError):
    """The run ID is already taken by another workflow or other arguments; nothing was changed."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id!r} already exists {why}; use another ID, or the same workflow and arguments")
        self.run_id = run_id


class RunNotFound(RomulusError):
    """No run has this ID in this namespace."""

    def __init__(self, run_id: str, namespace: str = "default") -> None:
        super().__init__(f"no run {run_id!r} in namespace {namespace!r}")
        self.run_id, self.namespace = run_id, namespace


class StepFailed(RomulusError):
    """A step raised an exception that cannot be rebuilt here as its own class; `type_name` names it."""

    def __init__(self, message: str = "", type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class StepTimeout(StepFailed, TimeoutError):
    """An attempt of a step ran past its timeout."""


class ChildFailed(RomulusError):
    """A child ended failed, cancelled or terminated; `__cause__` is what its code raised, where it can be rebuilt."""

    def __init__(self, run_id: str, status: str, error: str = "") -> None:
        how = f"was {status}" if status in ("cancelled", "terminated") else status
        super().__init__(f"child {run_id!r} {how}" + (f": {error}" if error else ""))
        self.run_id, self.status, self.error = run_id, status, error


class CleanUpTimeout(RomulusError, TimeoutError):
    """A cancelled run went on past the time it has to clean up, and was stopped as it stood."""

    def __init__(self, run_id: str, grace_us: int) -> None:
        waited = f"{grace_us / 1_000_000:g} s"
        super().__init__(f"run {run_id!r} had not ended {waited} after its cancel and was stopped: its clean-up is incomplete")
        self.run_id, self.grace_us = run_id, grace_us


class CleanUpFailed(RomulusError):
    """A run that was cancelled while it was held would have been held again, and was stopped as it stood."""

    def __init__(self, run_id: str, hold_reason: str) -> None:
        super().__init__(f"run {run_id!r} was cancelled while it was held, and its code could not clean up: {hold_reason}")
        self.run_id, self.hold_reason = run_id, hold_reason


class TooDeep(RomulusError):
    """A run with as many parents above it as are allowed cannot start children: look for a workflow that starts itself."""

    def __init__(self, run_id: str, depth_max: int) -> None:
        super().__init__(
            f"run {run_id!r} has {depth_max} parents above it, the most there may be, so it can start no child; "
            "does a workflow start itself? a loop belongs into continue_as_new()"
        )
        self.run_id, self.depth_max = run_id, depth_max


class OperationRejected(RomulusError):
    """The provider refused the operation: nothing was applied."""


class OperationAbandoned(RomulusError):
    """A reviewer gave the operation up: it may have been applied, so do not compensate as if it had failed."""


class NotSent(RomulusError):
    """For an operation's body to raise: the request never left this machine, so sending it again is safe."""


class Rejected(RomulusError):
    """For an operation's body to raise: the provider answered that it refuses, and has applied nothing."""


class OperationNotFound(RomulusError):
    """No operation has this ID in this namespace."""

    def __init__(self, operation_id: str, namespace: str = "default") -> None:
        super().__init__(f"no operation {operation_id!r} in namespace {namespace!r}")
        self.operation_id, self.namespace = operation_id, namespace


class CallbackRefused(RomulusError):
    """A provider's callback is not what its source signed, or is too old; nothing of it was kept."""


class OperationConflict(RomulusError):
    """The operation is settled already, or not open to this now; nothing was changed."""

    def __init__(self, operation_id: str, why: str) -> None:
        super().__init__(f"operation {operation_id!r} {why}")
        self.operation_id, self.why = operation_id, why


class WaitTimeout(RomulusError, TimeoutError):
    """No matching event came before the deadline."""


class EventConflict(RomulusError):
    """The event ID was used before with another body; nothing was stored."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"event ID {event_id!r} was already used with another name, correlation ID or payload; nothing was stored")
        self.event_id = event_id


class TooManyEvents(RomulusError):
    """As many events of that name and correlation ID as may wait do so already; nothing was stored."""

    def __init__(self, name: str, correlation_id: str, waiting_max: int) -> None:
        super().__init__(
            f"{waiting_max} events {name!r} with correlation ID {correlation_id!r} wait for a run to take them, the most there may be; "
            "nothing was stored: is a run waiting for them at all?"
        )
        self.name, self.correlation_id, self.waiting_max = name, correlation_id, waiting_max


class SerializationError(RomulusError):
    """A value cannot be stored and restored unchanged; the message names the path and the type."""


class ValueTooLarge(SerializationError):
    """An encoded value is larger than `value_max_bytes`."""


class DefinitionError(RomulusError):
    """A workflow, step, resource or App is declared wrongly; the message names the remedy."""


class NotDeterministic(DefinitionError):
    """Workflow code calls something that a replay cannot repeat, found when the App was built."""


class UnknownWorkflow(DefinitionError):
    """No workflow of that name and version is known here."""


class NondeterminismRefused(RomulusError):
    """Workflow code did something that a replay cannot repeat: put it in a step."""


class ConfigurationError(RomulusError):
    """A setting or store URL is wrong; the message names it and the remedy."""


class StoreError(RomulusError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written now; nothing was committed, so try again."""


class CommitUnknown(StoreError):
    """The commit may or may not have been applied: resubmit the same transition, never look first."""


class StoreSchemaError(StoreError):
    """The store's schema is not one this release works with."""


class NotOurFile(StoreError):
    """The file is not a Romulus store; it was left untouched."""


class ClaimLost(RomulusError):
    """Another worker took the run over: stop, touch nothing."""

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__(f"claim {fence} on run {run_id!r} is no longer the current one")
        self.run_id, self.fence = run_id, fence


class IllegalTransition(RomulusError):
    """The run's status does not accept the change; nothing was changed."""

    def __init__(self, status: str, change: str, run_id: str = "") -> None:
        super().__init__(f"a run that is {status} cannot {change}" + (f" (run {run_id!r})" if run_id else ""))
        self.status, self.change, self.run_id = status, change, run_id


class Mismatch(RomulusError):
    """The code asked for something else than the record holds at this position; the run is held, nothing is lost."""

    def __init__(self, position: int, recorded: str, attempted: str) -> None:
        super().__init__(
            f"the code no longer fits the record at position {position}: recorded {recorded}, the code asks for {attempted}; "
            "deploy the code that wrote the record, or guard the change with romulus.patched()"
        )
        self.position, self.recorded, self.attempted = position, recorded, attempted


class Undecodable(RomulusError):
    """A stored value cannot be decoded by the code that is here; the run is held until code that can is deployed."""


class Dropped(BaseException):
    """Thrown into the code of an instance that is being closed. Never caught, never stored."""


class ActivationTimeout(BaseException):
    """Thrown by the watchdog into workflow code that does not give control back."""
