"""What workflow code awaits: coroutine-like calls that become commands when they are first awaited."""

from __future__ import annotations

import warnings
from asyncio import Future
from collections.abc import Coroutine, Generator
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from .children import ChildState, chosen_before
from .commands import CancelChild, ChildCall, Command, Detail, OperationCall, OperationSpec, StepCall, StepSpec, WaitCall
from .digests import command_digest
from .record import Kind
from .seeds import derive

if TYPE_CHECKING:
    from .instance import Instance


class Call(Coroutine[Any, Any, Any]):
    """A command not asked for yet. Unlike a coroutine it is silent when it is dropped together with its instance."""

    __slots__ = ("_generator", "_instance")
    _instance: Instance | None  # None: awaited already
    _generator: Generator[Any, Any, Any] | None

    def _command(self, instance: Instance) -> Command:
        raise NotImplementedError

    def _label(self) -> str:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, Any]:
        instance, self._instance = self._instance, None
        if instance is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        return instance.outcome_of(self._command)

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        if self._generator is None:
            self._generator = self.__await__()
        return self._generator.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise in it, as in a coroutine."""
        if self._generator is None:
            self._generator = self.__await__()
        try:
            return self._generator.throw(*error)
        finally:
            del error  # its traceback holds this frame

    def close(self) -> None:
        """End it, as a coroutine."""
        self._instance = None
        if self._generator is not None:
            self._generator.close()

    def __del__(self) -> None:
        instance = self._instance
        if instance is not None and not instance.loop.refusing:
            warnings.warn(f"{self._label()} was called and never awaited: it did nothing", RuntimeWarning, stacklevel=2, source=self)


class StepAwaited(Call):
    """A call of a step."""

    __slots__ = ("args", "kwargs", "spec")

    def __init__(self, instance: Instance, spec: StepSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._instance, self._generator = instance, None
        self.spec, self.args, self.kwargs = spec, args, kwargs

    def _command(self, instance: Instance) -> Command:
        spec = self.spec
        arguments = spec.arguments.dump(self.args, self.kwargs)
        return made(instance, Kind.STEP, spec.name, arguments, StepCall(spec, arguments, copy_context()))

    def _label(self) -> str:
        return f"step {self.spec.name!r}"


class OperationAwaited(Call):
    """A call of an operation."""

    __slots__ = ("args", "kwargs", "spec")

    def __init__(self, instance: Instance, spec: OperationSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._instance, self._generator = instance, None
        self.spec, self.args, self.kwargs = spec, args, kwargs

    def _command(self, instance: Instance) -> Command:
        spec = self.spec
        arguments = spec.arguments.dump(self.args, self.kwargs)
        future = OperationFuture(loop=instance.loop)
        future.instance, future.seq = instance, instance.seq + 1
        call = OperationCall(
            spec, derive(instance.seeds.newest, "operation", future.seq).hex(), arguments, copy_context(), instance.position
        )
        return made(instance, Kind.OPERATION, spec.name, arguments, call, future)

    def _label(self) -> str:
        return f"operation {self.spec.name!r}"


class OperationFuture(Future[Any]):
    """An operation's outcome: while it may have been sent, a cancellation waits until it is settled."""

    __slots__ = ("instance", "seq")
    instance: Instance
    seq: int

    def cancel(self, msg: Any = None) -> bool:
        """Cancel what nothing was sent of; else refuse, which makes the task deliver its cancellation with the outcome."""
        return self.instance.gives_up(self.seq) and super().cancel(msg)


class WaitAwaited(Call):
    """A wait for an event."""

    __slots__ = ("call",)

    def __init__(self, instance: Instance, call: WaitCall) -> None:
        self._instance, self._generator = instance, None
        self.call = call

    def _command(self, instance: Instance) -> Command:
        call = self.call
        whose = None if call.correlation_id == instance.info.id else call.correlation_id  # a fork waits under its own ID
        arguments = repr((whose, call.deadline, call.shared, call.include_late)).encode("utf-8", "surrogatepass")
        return made(instance, Kind.WAIT, call.name, arguments, call)

    def _label(self) -> str:
        return f"wait for event {self.call.name!r}"


class ChildAwaited(Call):
    """A child whose outcome is awaited at once."""

    __slots__ = ("call",)
    kind = Kind.CHILD

    def __init__(self, instance: Instance, call: ChildCall) -> None:
        self._instance, self._generator = instance, None
        self.call = call

    def _command(self, instance: Instance) -> Command:
        call = self.call
        if call.id is not None:
            before = chosen_before(instance.info.id, call.id)
            call.copied = [command_digest(instance.seed, self.kind, call.workflow, _described(call, each)) for each in before]
        return made(instance, self.kind, call.workflow, _described(call, call.id), call)

    def _label(self) -> str:
        return f"workflow {self.call.workflow!r}"


class ChildStarted(ChildAwaited):
    """A child started for a handle: its outcome arrives whether or not anybody awaits it."""

    __slots__ = ()
    kind = Kind.STARTED

    def _command(self, instance: Instance) -> Command:
        self.call.outcome = ChildState(instance)
        command = super()._command(instance)
        self.call.outcome.seq = command.seq
        return command


class CancelAwaited(Call):
    """A request to cancel a child, done once it is stored."""

    __slots__ = ("call",)

    def __init__(self, instance: Instance, call: CancelChild) -> None:
        self._instance, self._generator = instance, None
        self.call = call

    def _command(self, instance: Instance) -> Command:
        return made(instance, Kind.CANCEL_CHILD, "", f"{self.call.child} {self.call.reason}".encode(), self.call)

    def _label(self) -> str:
        return "cancel of a child"


def _described(call: ChildCall, run_id: str | None) -> bytes:
    chosen = "" if run_id is None else f"{len(run_id)} {run_id}"
    return chosen.encode() + b" " + call.arguments


def made(instance: Instance, kind: Kind, name: str, arguments: bytes, detail: Detail, future: Any = None) -> Command:
    """Return the next command of *instance*, with a future of its own unless one is given."""
    instance.seq += 1
    digest = command_digest(instance.seed, kind, name, arguments)
    return Command(instance.seq, kind, name, digest, detail, instance.new_future() if future is None else future)
