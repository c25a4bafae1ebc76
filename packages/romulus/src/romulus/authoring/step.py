"""`@romulus.step`: a unit of work whose outcome is recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast, overload

from romulus.core.commands import StepSpec
from romulus.core.duration import Duration, InvalidSetting
from romulus.core.errors import DefinitionError, WrongColour
from romulus.core.instance import Instance
from romulus.core.retry import Retry
from romulus.core.values import ArgumentsCodec, ValueCodec

from .checks import check_flag, check_function, check_name, check_pool, check_timeout, declared_name, is_async, options_named, refuse_owner
from .place import here
from .suspends import suspends

P = ParamSpec("P")
T = TypeVar("T")
Co: TypeAlias = Coroutine[Any, Any, T]
KEEP: Any = object()  # an option that was not given


class _StepBase:
    """What both colours share: the declaration, its copies, and how they show."""

    spec: StepSpec
    __name__: str

    def __init__(self, spec: StepSpec) -> None:
        update_wrapper(cast("Callable[..., Any]", self), spec.fn, updated=())
        self.spec = spec

    @property
    def name(self) -> str:
        """The name its outcomes are recorded under."""
        return self.spec.name

    @options_named(".options() of a step")
    def options(
        self,
        *,
        name: str = KEEP,
        retry: Retry = KEEP,
        timeout: Duration | None = KEEP,
        heartbeat_timeout: Duration | None = KEEP,
        pool: str | None = KEEP,
    ) -> Self:
        """Return a copy with these options; what is not given stays. Durations are seconds or timedelta, for one attempt."""
        given = {"name": name, "retry": retry, "timeout": timeout, "heartbeat_timeout": heartbeat_timeout, "pool": pool}
        policy = _policy({key: value for key, value in given.items() if value is not KEEP})
        return type(self)(_checked(replace(self.spec, **policy)))

    def __set_name__(self, owner: type, name: str) -> None:
        refuse_owner(owner, name, self.spec.fn, "step")

    def __repr__(self) -> str:
        return f"<romulus step {self.name}>"


class Step(_StepBase, Generic[P, T]):
    """A step from `async def`. In async workflows call it plainly; in `def` ones `step.blocking(…)`."""

    @property
    def fn(self) -> Callable[P, Co[T]]:
        """The function itself."""
        return self.spec.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the step's outcome once awaited: in a run, recorded; elsewhere the plain function's.

        Raises:
            WrongColour: called in a `def` workflow.
        """
        instance = here()
        if instance is None:
            return cast("Co[T]", self.spec.fn(*args, **kwargs))
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is an async def step in a def workflow: write {self.__name__}.blocking(…)")
        return instance.step(self.spec, args, kwargs)

    def blocking(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the step's outcome, from a `def` workflow. Outside a run it runs the function in an event loop of its own.

        Raises:
            WrongColour: called where it would block an event loop.
        """
        instance = here()
        if instance is None:
            return self._run_here(*args, **kwargs)
        return cast("T", _block(instance, self, f"await {self.__name__}(…)", args, kwargs))

    def _run_here(self, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self.fn(*args, **kwargs))
        raise WrongColour(f"{self.name}.blocking(…) would block the event loop: write await {self.__name__}(…)")


class SyncStep(_StepBase, Generic[P, T]):
    """A step from `def`, run in the thread pool. In `def` workflows call it plainly; in async ones `await step.aio(…)`."""

    @property
    def fn(self) -> Callable[P, T]:
        """The function itself."""
        return self.spec.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the step's outcome: in a run, recorded; elsewhere the plain function's.

        Raises:
            WrongColour: called in an async workflow.
        """
        instance = here()
        if instance is None:
            return cast("T", self.spec.fn(*args, **kwargs))
        return cast("T", _block(instance, self, f"await {self.__name__}.aio(…)", args, kwargs))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the step's outcome once awaited, from an async workflow. Outside a run the function runs in a thread.

        Raises:
            WrongColour: called in a `def` workflow.
        """
        instance = here()
        if instance is None:
            return asyncio.to_thread(self.fn, *args, **kwargs)
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is a def step in a def workflow: write {self.__name__}(…)")
        return instance.step(self.spec, args, kwargs)


class StepDecorator(Protocol):
    """What `@romulus.step(…)` returns."""

    @overload
    def __call__(self, fn: Callable[P, Co[T]], /) -> Step[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[P, T], /) -> SyncStep[P, T]: ...


@overload
def step(fn: Callable[P, Co[T]], /) -> Step[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def step(fn: Callable[P, T], /) -> SyncStep[P, T]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry = ...,
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    pool: str | None = None,
    transaction: bool = False,
) -> StepDecorator: ...
@options_named("@romulus.step")
def step(
    fn: Any = KEEP,
    /,
    *,
    name: str | None = None,
    retry: Retry = Retry(),  # noqa: B008  # immutable, and the default users see
    timeout: Duration | None = None,
    heartbeat_timeout: Duration | None = None,
    pool: str | None = None,
    transaction: bool = False,
) -> Any:
    """Declare a step: its outcome is recorded once, and a replay takes it from the record.

    Args:
        name: what its outcomes are recorded under; the function's own name unless given.
        retry: attempts and the time between them.
        timeout: seconds or timedelta that one attempt may take; None is no limit.
        heartbeat_timeout: the longest time between two heartbeats of an attempt.
        pool: only workers serving this pool work it.
        transaction: the body's writes through `current_attempt().connection`, its outcome and the claim check are one transaction.

    Raises:
        DefinitionError: the function cannot be a step, or the options do not fit together.
    """
    policy = _policy({"retry": retry, "timeout": timeout, "heartbeat_timeout": heartbeat_timeout, "pool": pool})

    def declare(function: object) -> Step[..., Any] | SyncStep[..., Any]:
        checked = check_function(function, "step")
        spec = _spec(checked, declared_name(checked, name, "step"), policy, check_flag(transaction, "transaction"))
        return Step(spec) if spec.is_async else SyncStep(spec)

    return declare if fn is KEEP else declare(fn)


def _spec(fn: Callable[..., Any], name: str, policy: dict[str, Any], transaction: bool) -> StepSpec:
    where = f"step {name!r} ({fn.__module__}.{fn.__qualname__})"
    return _checked(
        StepSpec(
            name=name,
            fn=fn,
            is_async=is_async(fn),
            suspends=suspends(fn),
            transaction=transaction,
            arguments=ArgumentsCodec(fn, where),
            value=ValueCodec.returned_by(fn, where),
            **policy,
        )
    )


def _policy(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given options as `StepSpec` holds them, each checked."""
    return {key: _OPTIONS[key](value) for key, value in given.items()}


def _retry(value: object) -> Retry:
    if not isinstance(value, Retry):
        raise InvalidSetting(f"retry must be a romulus.Retry, not {type(value).__name__}: for example Retry(max_attempts=5)")
    return value


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "name": lambda value: check_name(value, "step name"),
    "retry": _retry,
    "timeout": lambda value: check_timeout(value, "step timeout"),
    "heartbeat_timeout": lambda value: check_timeout(value, "step heartbeat_timeout"),
    "pool": lambda value: check_pool(value, "step pool"),
}


def _checked(spec: StepSpec) -> StepSpec:
    if spec.transaction and spec.pool is not None:
        raise DefinitionError(
            f"step {spec.name!r} cannot have both transaction=True and pool=: its commit is the run's own, so the run's worker works it"
        )
    return spec


def _block(instance: Instance, step: _StepBase, spelling: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the outcome to a `def` workflow; *spelling* is what an async one must write."""
    if not instance.in_bridge():
        raise WrongColour(f"{step.name} was called as in a def workflow, but this workflow is async: write {spelling}")
    return instance.blocking(instance.step(step.spec, args, kwargs))
