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
            except (Exception, SystemExit) as error:  # noqa: BLE001  # reported together
                failure = raisable(error)
                failure.add_note(f"raised while undoing with {name}")
                failures.append(failure)
        return failures


class _Scope(AbstractAsyncContextManager[Saga]):
    def __init__(self) -> None:
        self._saga = Saga()

    async def __aenter__(self) -> Saga:
        return self._saga

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Undo if the block failed or was cancelled, whatever it raised; a dropped instance and `continue_as_new` undo nothing."""
        if error is None or any(isinstance(each, GOES_ON) for each in leaves(error)):
            return
        total = len(self._saga)
        failures = await _shielded(self._saga)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of {total} undo actions failed", failures) from error


def saga() -> AbstractAsyncContextManager[Saga]:
    """Return a scope whose `saga.add(undo, *args)` are undone in reverse order if it is left by an exception or a cancel.

    Undoing is durable, is not interrupted by a further cancel, and goes on past an undo that fails: the failures are raised
    together at the end, as an exception group with what ended the block as its cause. Otherwise what ended the block goes on.

    Raises:
        NotInRun: called outside workflow code.
        WrongColour: called in a `def` workflow.
    """
    instance = workflow_code("romulus.saga()", "a step cleans up with try and finally")
    if instance.in_bridge():
        raise WrongColour("romulus.saga() is for async workflows: in a def workflow use try and except")
    return _Scope()


async def _shielded(saga: Saga) -> list[Exception]:
    """Unwind in a task of its own, which no cancel of this one reaches."""
    unwinding = asyncio.ensure_future(saga.unwind())
    while not unwinding.done():
        try:
            await asyncio.shield(unwinding)
        except asyncio.CancelledError:
            if unwinding.cancelled():
                raise
    return unwinding.result()


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
