"""`@romulus.resource`: what steps need for a worker's lifetime, opened before it claims and closed after it stops."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from types import FunctionType
from typing import Any, Generic, TypeVar, cast

from romulus.core.errors import ConfigurationError, DefinitionError, NondeterminismRefused, NotInRun, RomulusError

from .checks import declared_name, is_method
from .current import attempt_var
from .place import here

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Resource(Generic[T_co]):
    """A dependency with the lifetime of a worker."""

    def __init__(self, fn: Callable[[], AsyncIterator[T_co]], name: str) -> None:
        self.fn, self.name = fn, name
        self.__doc__ = fn.__doc__

    def get(self) -> T_co:
        """Return the value the worker opened. Only inside a step.

        Raises:
            NondeterminismRefused: called in workflow code.
            NotInRun: called outside a step, or the App does not have the resource.
        """
        if here() is not None:
            raise NondeterminismRefused(f"resource {self.name!r} was asked for in workflow code: call {self.name}.get() inside a step")
        attempt = attempt_var.get()
        if attempt is None or attempt.resources is None:
            raise NotInRun(f"resource {self.name!r} is open only inside a step that a worker runs: call {self.name}.get() there")
        return cast("T_co", attempt.resources.value(self))

    def __repr__(self) -> str:
        return f"<romulus resource {self.name}>"


def resource(fn: Callable[[], AsyncIterator[T]], /) -> Resource[T]:
    """Declare a resource: an async generator function that opens a value, yields it once, and closes it after.

    Raises:
        DefinitionError: *fn* is something else, or takes parameters.
    """
    if not isinstance(fn, FunctionType) or not inspect.isasyncgenfunction(fn):
        raise DefinitionError(f"{getattr(fn, '__qualname__', fn)!s} cannot be a resource: write async def with one yield and no parameters")
    if is_method(fn) or inspect.signature(fn).parameters:
        raise DefinitionError(f"resource {fn.__qualname__} takes parameters: a worker opens it without any; read settings inside it")
    return Resource(fn, declared_name(fn, None, "resource"))


class ResourceSet:
    """The resources of one worker, open or not."""

    def __init__(self, resources: Iterable[Resource[Any]] = ()) -> None:
        self.resources = list(resources)
        self._values: dict[int, Any] = {}  # by id(resource), while open
        self._overrides: dict[int, Any] = {}  # values given instead; those resources are not opened
        self._keeper: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    def override(self, resource: Resource[T], value: T) -> None:
        """Give *value* instead of what the resource would open."""
        self._overrides[id(resource)] = value

    def value(self, resource: Resource[Any]) -> Any:
        """Return the open value of *resource*.

        Raises:
            NotInRun: it is not among the App's resources, or not open.
        """
        for values in (self._overrides, self._values):
            if id(resource) in values:
                return values[id(resource)]
        if resource in self.resources:
            raise NotInRun(f"resource {resource.name!r} is not open: its worker has not started, or has stopped")
        raise NotInRun(f"resource {resource.name!r} is not among the App's: add it to App(resources=[…])")

    async def open(self) -> None:
        """Open all in order, on the running loop; if one fails, close those already open.

        Raises:
            ConfigurationError: one could not be opened; it is named, and what it raised is the cause.
        """
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leave.clear()
        # One task opens and closes: cancel scopes and context variables of a resource insist on it.
        self._keeper = asyncio.create_task(self._keep(opened), name="romulus resources")
        try:
            await opened
        except asyncio.CancelledError:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            raise

    async def close(self) -> None:
        """Close all in reverse order, each whatever the others do. Idempotent.

        Raises:
            RomulusError: one could not be closed; it is named, and what it raised is the cause.
            ExceptionGroup: several could not.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            self._leave.set()
            await keeper

    async def _keep(self, opened: asyncio.Future[None]) -> None:
        entered: list[tuple[Resource[Any], AsyncIterator[Any]]] = []
        try:
            for resource in self.resources:
                if id(resource) not in self._overrides:
                    self._values[id(resource)] = await _enter(resource, entered)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits in open()
            await self._abandon(entered, error)
            _hand_over(opened, error)
            return
        try:
            if not opened.cancelled():
                opened.set_result(None)
                await self._leave.wait()
        finally:
            failures = await self._leave_all(entered)
        _raise_all(failures)

    async def _abandon(self, entered: list[tuple[Resource[Any], AsyncIterator[Any]]], error: BaseException) -> None:
        for failure in await self._leave_all(entered):
            error.add_note(f"and then: {failure}")

    async def _leave_all(self, entered: list[tuple[Resource[Any], AsyncIterator[Any]]]) -> list[Exception]:
        failures: list[Exception] = []
        for resource, generator in reversed(entered):
            self._values.pop(id(resource), None)
            try:
                await _leave(resource, generator)
            except Exception as error:  # noqa: BLE001 - the others are closed whatever this one does
                failures.append(error)
        return failures


async def _enter(resource: Resource[Any], entered: list[tuple[Resource[Any], AsyncIterator[Any]]]) -> Any:
    generator = resource.fn()
    try:
        value = await anext(generator)
    except StopAsyncIteration:
        raise ConfigurationError(f"resource {resource.name!r} ended without yielding a value") from None
    except Exception as error:
        raise ConfigurationError(f"resource {resource.name!r} could not be opened: {type(error).__name__}: {error}") from error
    entered.append((resource, generator))
    return value


async def _leave(resource: Resource[Any], generator: AsyncIterator[Any]) -> None:
    try:
        await anext(generator)
    except StopAsyncIteration:
        return
    except Exception as error:
        raise RomulusError(f"resource {resource.name!r} could not be closed: {type(error).__name__}: {error}") from error
    await cast("Any", generator).aclose()
    raise RomulusError(f"resource {resource.name!r} yielded a second time: it must yield once")


def _hand_over(opened: asyncio.Future[None], error: BaseException) -> None:
    if not opened.done():
        opened.set_exception(error)
    elif not isinstance(error, Exception):
        raise error


def _raise_all(failures: list[Exception]) -> None:
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("several resources could not be closed", failures)
