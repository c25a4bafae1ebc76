"""What workflow code can ask for, as the worker sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from .record import Deposit, Kind
from .retry import Retry
from .values import ArgumentsCodec, ValueCodec


@dataclass(slots=True, eq=False)
class StepSpec:
    """A step as declared: its function, its policy and how its values are stored."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    suspends: bool  # its body may suspend: it needs a task of its own
    retry: Retry
    timeout: int | None  # µs for one attempt
    heartbeat_timeout: int | None  # µs
    pool: str | None
    transaction: bool
    arguments: ArgumentsCodec
    value: ValueCodec


@dataclass(slots=True, eq=False)
class WorkflowSpec:
    """A workflow as declared, or one version of it."""

    name: str
    version: str
    fn: Callable[..., Any]
    is_async: bool
    timeout: int | None  # µs
    arguments: ArgumentsCodec
    value: ValueCodec


@dataclass(slots=True, eq=False)
class StepCall:
    """Work for an executor: `spec` with these encoded arguments, in a copy of this context."""

    spec: StepSpec
    arguments: bytes  # plaintext; each attempt decodes its own copy
    context: Context  # of the task that called


@dataclass(slots=True, eq=False)
class OperationSpec:
    """An operation as declared: its function, what its provider promises, and how its values are stored."""

    name: str
    fn: Callable[..., Any]
    is_async: bool
    suspends: bool  # its body may suspend: it needs a task of its own
    retry: Retry  # of sends
    lookup_retry: Retry
    timeout: int  # µs for one send
    idempotent: bool
    key_lifetime: int | None  # µs
    settle: int  # µs
    pool: str | None
    on_cancel: str  # settle | abandon
    arguments: ArgumentsCodec
    value: ValueCodec
    extras: OperationExtras  # shared with copies that have other options


@dataclass(slots=True, eq=False)
class OperationExtras:
    """What is declared beside an operation's function."""

    lookup: Callable[..., Any] | None = None
    callbacks: dict[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])  # by source


@dataclass(slots=True, eq=False)
class OperationCall:
    """An external write for an executor: `spec` with these encoded arguments, in a copy of this context."""

    spec: OperationSpec
    id: str  # operation ID: derived from the generation's newest seed and the command's number
    arguments: bytes  # plaintext; each send decodes its own copy
    context: Context  # of the task that called
    position: int  # entries that the code had seen when it asked


@dataclass(slots=True, eq=False)
class TimerCall:
    """A timer: fires through its own journal entry once `due` has come."""

    due: int  # store µs


@dataclass(slots=True, eq=False)
class WaitCall:
    """A durable wait for an event."""

    name: str
    correlation_id: str
    deadline: int | None  # store µs
    value: ValueCodec
    shared: bool = False
    include_late: bool = False


@dataclass(slots=True, eq=False)
class ChildCall:
    """A workflow to be run as a child of this run."""

    workflow: str
    version: str
    arguments: bytes  # plaintext
    value: ValueCodec
    id: str | None  # chosen by the code; None: made from the generation's newest seed
    on_close: str  # cancel | terminate | abandon
    timeout: int | None  # µs
    priority: int = 0
    delay: int | None = None  # µs
    start_at: int | None = None  # store µs
    attributes: str = "{}"
    copied: Sequence[bytes] = ()  # digests that it may have in a journal copied by a fork
    run_id: str = ""  # once the record says it was started, for a handle
    outcome: Settled | None = None  # of a child started for a handle: where its outcome goes


@dataclass(slots=True, eq=False)
class CancelChild:
    """A request at a child that was started for a handle."""

    child: int  # seq of the command that started it
    reason: str


class Settled(Protocol):
    """Where an outcome goes that nobody need await."""

    def set_result(self, value: Any) -> None: ...
    def set_exception(self, error: BaseException) -> None: ...


Detail: TypeAlias = StepCall | OperationCall | TimerCall | WaitCall | ChildCall | CancelChild


@dataclass(slots=True, eq=False)
class Command:
    """One thing workflow code asked for and has no outcome of yet."""

    seq: int  # in the order first awaited or scheduled
    kind: Kind
    name: str
    digest: bytes  # 8 bytes over kind, name and arguments, keyed by the seed in force
    detail: Detail
    future: Any  # asyncio.Future, or the timer's handle: what `Instance.deliver` settles


@dataclass(slots=True)
class Returned:
    """The generation's code returned."""

    body: bytes  # encoded result, before the App's codec


@dataclass(slots=True)
class Failed:
    """The generation's code raised."""

    body: bytes  # core.failures, before the App's codec
    ended_by: int | None  # position of the entry whose exception this is, or that it was raised from


@dataclass(slots=True)
class Cancelled:
    """The generation's code ended with CancelledError after a delivered cancel."""

    body: bytes


@dataclass(slots=True)
class Continued:
    """The generation's code asked to continue as new."""

    workflow: str
    version: str
    arguments: bytes  # encoded, before the App's codec


Outcome: TypeAlias = Returned | Failed | Cancelled | Continued

__all__ = [
    "CancelChild", "Cancelled", "ChildCall", "Command", "Continued", "Deposit", "Detail", "Failed", "OperationCall",
    "OperationExtras", "OperationSpec", "Outcome", "Returned", "StepCall", "StepSpec", "TimerCall", "WaitCall", "WorkflowSpec",
]  # fmt: skip
