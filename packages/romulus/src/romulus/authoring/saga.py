"""`romulus.saga`: what was done is undone, in reverse order, when the code after it fails or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, ParamSpec, cast

from romulus.core.endings import ContinueAsNew, leaves, raisable
from romulus.core.errors import ActivationTimeout, DefinitionError, Dropped, WrongColour

from .children import child_call
from .operation import OperationFunction, SyncOperationFunction
from .place import here, workflow_code
from .step import Step, SyncStep
from .workflow import AnyWorkflow

P = ParamSpec("P")
GOES_ON = (ContinueAsNew, Dropped, ActivationTimeout, GeneratorExit, KeyboardInterrupt)  # the run does not end with it


class Saga:
    """What is to be undone, newest first."""

    def __init__(self) -> None:
        self._undo: list[tuple[str, Callable[[], Any]]] = []

    def add(self, undo: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have *undo* called with these arguments should the block fail: a step, operation or workflow of either colour, or a function.

        Add it once what it undoes is done; adding does nothing durable.
        """
        if not callable(undo):  # pyright: ignore[reportUnnecessaryComparison]  # users without a type checker
            raise DefinitionError(f"{undo!r} cannot undo anything: give a step, an operation, a workflow or a function")
        self._undo.append((_name(undo), partial(_call, undo, args, kwargs)))

    def __len__(self) -> int:
        return len(self._undo)

    async def unwind(self) -> list[Exception]:
        """Call everything that was added, newest first, each although others failed; return their failures."""
        failures: list[Exception] = []
        while self._undo:
            name, call = self._undo.pop()
            try:
                outcome = call()
                if isawaitable(outcome):
                    await outcome
            except BaseException as error:
                if _is_closing() or _goes_on(error):
                    raise
                _forget_cancels()
                failure = raisable(error)
                failure.add_note(f"raised while undoing with {name}")
                failures.append(failure)
        return failures


class _Scope(AbstractAsyncContextManager[Saga]):
    def __init__(self) -> None:
        self._open: Saga | None = None  # the block's, while there is one

    async def __aenter__(self) -> Saga:
        if self._open is not None:
            raise DefinitionError("the block of this saga has not ended: for a block inside of it or beside it, write romulus.saga() again")
        self._open = Saga()
        return self._open

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Undo if the block failed or was cancelled, whatever it raised; a dropped instance and `continue_as_new` undo nothing."""
        saga, self._open = self._open, None
        if saga is None or error is None or _is_closing() or _goes_on(error):
            return
        total = len(saga)
        failures, cancel = await _shielded(saga)
        failed = f"{len(failures)} of {total} undo actions failed"
        if failures and cancel is not None:
            raise BaseExceptionGroup(f"{failed}, cancelled meanwhile", [*failures, cancel]) from error
        if failures:
            raise ExceptionGroup(failed, failures) from error
        if cancel is not None and not any(isinstance(each, asyncio.CancelledError) for each in leaves(error)):
            raise cancel from error


def saga() -> AbstractAsyncContextManager[Saga]:
    """Return a scope whose `saga.add(undo, *args)` are undone in reverse order if it is left by an exception or a cancel.

    Undoing is durable, is not interrupted by a further cancel, and goes on past an undo that fails: the failures are raised
    together at the end, as an exception group with what ended the block as its cause. Otherwise what ended the block goes on;
    a cancel that came while an error was being undone is raised then, from that error, or as a member of the group.

    Raises:
        NotInRun: called outside workflow code.
        WrongColour: called in a `def` workflow.
    """
    instance = workflow_code("romulus.saga()", "a step cleans up with try and finally")
    if instance.in_bridge():
        raise WrongColour("romulus.saga() is for async workflows: in a def workflow use try and except")
    return _Scope()


async def _shielded(saga: Saga) -> tuple[list[Exception], asyncio.CancelledError | None]:
    """Unwind in a task of its own, which no cancel of this one reaches; return the failures, and the first cancel that came meanwhile."""
    cancel: asyncio.CancelledError | None = None
    unwinding = asyncio.ensure_future(saga.unwind())
    while not unwinding.done():
        try:
            await asyncio.wait([unwinding])
        except asyncio.CancelledError as error:
            cancel = cancel or error
        if unwinding.cancelled() and not _is_closing():  # with every task of the run, before it had begun
            unwinding = asyncio.ensure_future(saga.unwind())
    return unwinding.result(), cancel


def _goes_on(error: BaseException) -> bool:
    return any(isinstance(each, GOES_ON) for each in leaves(error))


def _is_closing() -> bool:
    """Return whether the run's code has ended or is being dropped: nothing it does counts any more."""
    return asyncio.get_running_loop().is_closed()


def _forget_cancels() -> None:
    """Have a cancel of the task that undoes, which an undo has taken, mean nothing to the next."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _call(undo: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    instance = here()
    if instance is not None and isinstance(undo, Step | SyncStep):
        return instance.step(undo.spec, args, kwargs)
    if instance is not None and isinstance(undo, OperationFunction | SyncOperationFunction):
        return instance.operation(cast("OperationFunction[..., Any]", undo).spec, args, kwargs)
    if instance is not None and isinstance(undo, AnyWorkflow):
        return instance.child(child_call(instance, cast("AnyWorkflow[..., Any]", undo), args, kwargs))
    return undo(*args, **kwargs)


def _name(undo: Any) -> str:
    return str(getattr(undo, "name", None) or getattr(undo, "__qualname__", None) or undo)
