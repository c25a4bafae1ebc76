"""`@romulus.operation`: an external write whose ID is recorded before it is sent, and that is never sent again blindly."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import update_wrapper
from inspect import Parameter, signature
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast, overload

from romulus.core.annotations import annotations_of
from romulus.core.commands import OperationExtras, OperationSpec
from romulus.core.duration import Duration, InvalidSetting, micros
from romulus.core.errors import DefinitionError, NotInRun, WrongColour
from romulus.core.instance import Instance
from romulus.core.operations import Callback, LookupResult
from romulus.core.retry import Retry
from romulus.core.values import ArgumentsCodec, ValueCodec

from .checks import check_flag, check_function, check_name, check_pool, check_timeout, declared_name, is_async, options_named, refuse_owner
from .place import here
from .suspends import suspends

P = ParamSpec("P")
T = TypeVar("T")
Co: TypeAlias = Coroutine[Any, Any, T]
KEEP: Any = object()  # an option that was not given
TIMEOUT = 60.0  # seconds for one send, unless given
SENDS = Retry()
LOOKUPS = Retry(max_attempts=10)


@dataclass(frozen=True, slots=True)
class Operation:
    """What an operation's body and its lookup receive."""

    id: str  # stable and unique: hand it to the provider as idempotency key or reference; safe in a header
    attempt: int = 1  # 1 the first send
    fence: int = 0  # the claim it is sent under, for conditional writes in your own systems
    first_sent_at: datetime | None = None  # the earliest it can have left; None: it has not

    @classmethod
    def for_testing(cls, id: str = "op-test") -> Operation:  # noqa: A002 - the name of the field
        """Return one to call `operation.fn` with in a test."""
        return cls(id)


class _OperationBase:
    """What both colours share: the declaration, its copies, its lookup and callbacks."""

    spec: OperationSpec
    __name__: str

    def __init__(self, spec: OperationSpec) -> None:
        update_wrapper(cast("Callable[..., Any]", self), spec.fn, updated=())
        self.spec = spec

    @property
    def name(self) -> str:
        """The name it is recorded under."""
        return self.spec.name

    @options_named(".options() of an operation")
    def options(self, *, timeout: Duration | None = KEEP, retry: Retry = KEEP, lookup_retry: Retry = KEEP) -> Self:
        """Return a copy with these options; what is not given stays."""
        given = {"timeout": timeout, "retry": retry, "lookup_retry": lookup_retry}
        policy = {key: _OPTIONS[key](value) for key, value in given.items() if value is not KEEP}
        return type(self)(replace(self.spec, **policy))

    def callback(self, *, source: str) -> Callable[[Callable[[Mapping[str, Any]], Callback[Any]]], Any]:
        """Declare what a signed webhook of *source* says of one operation: its body, verified, to a `Callback`."""
        check_name(source, "callback source")

        def declare(fn: Callable[[Mapping[str, Any]], Callback[Any]]) -> Any:
            if self.spec.extras.callbacks.setdefault(source, fn) is not fn:
                raise DefinitionError(f"operation {self.name!r} has a callback for source {source!r} already")
            return fn

        return declare

    def _declare_lookup(self, fn: Callable[..., Any]) -> None:
        check_function(fn, "lookup")
        if self.spec.extras.lookup is not None:
            raise DefinitionError(f"operation {self.name!r} has a lookup already")
        if _parameters(fn) != _parameters(self.spec.fn):
            raise DefinitionError(f"the lookup of operation {self.name!r} must take what the operation takes: {signature(self.spec.fn)}")
        self.spec.extras.lookup = fn

    def __set_name__(self, owner: type, name: str) -> None:
        refuse_owner(owner, name, self.spec.fn, "operation")

    def __repr__(self) -> str:
        return f"<romulus operation {self.name}>"


class OperationFunction(_OperationBase, Generic[P, T]):
    """An operation from `async def`, called without `op`. In async workflows call it plainly; in `def` ones `operation.blocking(…)`."""

    @property
    def fn(self) -> Callable[Concatenate[Operation, P], Co[T]]:
        """The function itself."""
        return self.spec.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the operation's result once awaited.

        Raises, once awaited:
            OperationRejected: the provider refused it. OperationAbandoned: a reviewer gave up, it may have been applied.
            NotSent: it never left, attempts used up. NotInRun, WrongColour: not called from an async workflow.
        """
        instance = _instance(self)
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is an async def operation in a def workflow: write {self.__name__}.blocking(…)")
        return instance.operation(self.spec, args, kwargs)

    def blocking(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the operation's result, from a `def` workflow; raises as the plain call."""
        return cast("T", _block(_instance(self), self, f"await {self.__name__}(…)", args, kwargs))

    @overload
    def lookup(
        self, fn: Callable[Concatenate[Operation, P], Co[LookupResult[T]]], /
    ) -> Callable[Concatenate[Operation, P], Co[LookupResult[T]]]: ...
    @overload
    def lookup(
        self, fn: Callable[Concatenate[Operation, P], LookupResult[T]], /
    ) -> Callable[Concatenate[Operation, P], LookupResult[T]]: ...
    def lookup(self, fn: Any, /) -> Any:
        """Declare how the provider is asked whether the operation was applied: same parameters, returns a `LookupResult`."""
        self._declare_lookup(fn)
        return fn


class SyncOperationFunction(_OperationBase, Generic[P, T]):
    """An operation from `def`, run in the thread pool. In `def` workflows call it plainly; in async ones `await operation.aio(…)`."""

    @property
    def fn(self) -> Callable[Concatenate[Operation, P], T]:
        """The function itself."""
        return self.spec.fn

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the operation's result; raises as `OperationFunction.__call__`."""
        return cast("T", _block(_instance(self), self, f"await {self.__name__}.aio(…)", args, kwargs))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the operation's result once awaited, from an async workflow."""
        instance = _instance(self)
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is a def operation in a def workflow: write {self.__name__}(…)")
        return instance.operation(self.spec, args, kwargs)

    def lookup(self, fn: Callable[Concatenate[Operation, P], LookupResult[T]], /) -> Callable[Concatenate[Operation, P], LookupResult[T]]:
        """Declare how the provider is asked whether the operation was applied: same parameters, returns a `LookupResult`."""
        self._declare_lookup(fn)
        return fn


class OperationDecorator(Protocol):
    """What `@romulus.operation(…)` returns."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Operation, P], Co[T]], /) -> OperationFunction[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[Concatenate[Operation, P], T], /) -> SyncOperationFunction[P, T]: ...


@overload
def operation(fn: Callable[Concatenate[Operation, P], Co[T]], /) -> OperationFunction[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def operation(fn: Callable[Concatenate[Operation, P], T], /) -> SyncOperationFunction[P, T]: ...
@overload
def operation(
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    idempotent: bool = False,
    key_lifetime: Duration | None = None,
    settle: Duration = 0,
    retry: Retry = ...,
    lookup_retry: Retry = ...,
    pool: str | None = None,
    on_cancel: Literal["settle", "abandon"] = "settle",
) -> OperationDecorator: ...
@options_named("@romulus.operation")
def operation(
    fn: Any = KEEP,
    /,
    *,
    name: str | None = None,
    timeout: Duration | None = None,
    idempotent: bool = False,
    key_lifetime: Duration | None = None,
    settle: Duration = 0,
    retry: Retry = SENDS,
    lookup_retry: Retry = LOOKUPS,
    pool: str | None = None,
    on_cancel: Literal["settle", "abandon"] = "settle",
) -> Any:
    """Declare an external write. Its ID is recorded before it is sent; without a definite answer it is looked up, never sent again blindly.

    Its first parameter is annotated `romulus.Operation` and supplied by the engine. Raise `romulus.NotSent` where nothing left,
    `romulus.Rejected` where the provider refused; any other exception leaves open whether it was applied.

    Args:
        name: what it is recorded under; the function's own name unless given.
        timeout: seconds or timedelta that one send may take; 60 seconds unless given: there always is an end after which nothing leaves.
        idempotent: the provider applies one ID (`op.id`, as its idempotency key) once.
        key_lifetime: how long it knows the key; None is for ever.
        settle: how long a write may take to show in lookups.
        retry: sends, also those after a lookup, and the time between them.
        lookup_retry: lookups without an answer, and the time between them, before a person is asked.
        pool: only workers serving this pool send it, look it up and settle it; else the worker that has the run sends it.
        on_cancel: "settle": a cancellation waits until it is known what became of it. "abandon": it does not.

    Raises:
        DefinitionError: the function cannot be an operation, or the options do not fit together.
    """
    given = {"timeout": timeout, "settle": settle, "retry": retry, "lookup_retry": lookup_retry, "pool": pool, "on_cancel": on_cancel}
    policy = {key: _OPTIONS[key](value) for key, value in given.items()}
    lifetime = check_timeout(key_lifetime, "operation key_lifetime")

    def declare(function: object) -> OperationFunction[..., Any] | SyncOperationFunction[..., Any]:
        checked = check_function(function, "operation")
        spec = _spec(checked, declared_name(checked, name, "operation"), policy, check_flag(idempotent, "idempotent"), lifetime)
        return OperationFunction(spec) if spec.is_async else SyncOperationFunction(spec)

    return declare if fn is KEEP else declare(fn)


def _spec(fn: Callable[..., Any], name: str, policy: dict[str, Any], idempotent: bool, lifetime: int | None) -> OperationSpec:
    if not _parameters(fn):
        raise DefinitionError(f"operation {name!r} needs a first parameter for its ID: def {fn.__name__}(op: romulus.Operation, …)")
    if lifetime is not None and not idempotent:
        raise DefinitionError(f"operation {name!r} has key_lifetime= without idempotent=True: only a key that the provider honours has one")
    where = f"operation {name!r} ({fn.__module__}.{fn.__qualname__})"
    _check_first(fn, name, where)
    return OperationSpec(
        name=name, fn=fn, is_async=is_async(fn), suspends=suspends(fn), idempotent=idempotent, key_lifetime=lifetime,
        arguments=ArgumentsCodec(fn, where, skip=1), value=ValueCodec.returned_by(fn, where), extras=OperationExtras(), **policy,
    )  # fmt: skip


def _check_first(fn: Callable[..., Any], name: str, where: str) -> None:
    """Refuse a function whose first parameter is for something else: whoever calls it would not know why an argument is too many."""
    first = next(iter(signature(fn).parameters))
    try:
        declared: Any = annotations_of(fn, where).get(first, Any)
    except DefinitionError:  # of a name that is defined later
        return
    if declared is not Operation and declared is not Any:
        raise DefinitionError(
            f"operation {name!r} takes {first!r} first, which is no romulus.Operation: "
            f"write def {fn.__name__}(op: romulus.Operation, {first}, …)"
        )


def _parameters(fn: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the names and kinds of a function's parameters; the first, for the operation, may have any name."""
    found = list(signature(fn).parameters.values())
    if not found or found[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return []
    return [("op", None), *((parameter.name, parameter.kind) for parameter in found[1:])]


def _retry(value: object, field: str) -> Retry:
    if not isinstance(value, Retry):
        raise InvalidSetting(f"{field} must be a romulus.Retry, not {type(value).__name__}: for example Retry(max_attempts=5)")
    return value


def _on_cancel(value: object) -> str:
    if value not in ("settle", "abandon"):
        raise InvalidSetting(f'on_cancel must be "settle" or "abandon", not {value!r}')
    return str(value)


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "timeout": lambda value: check_timeout(TIMEOUT if value is None else value, "operation timeout", f"means {TIMEOUT:g} s"),
    "settle": lambda value: micros(value, "operation settle"),
    "retry": lambda value: _retry(value, "retry"),
    "lookup_retry": lambda value: _retry(value, "lookup_retry"),
    "pool": lambda value: check_pool(value, "operation pool"),
    "on_cancel": _on_cancel,
}


def _instance(operation: _OperationBase) -> Instance:
    instance = here()
    if instance is None:
        raise NotInRun(
            f"operation {operation.name!r} was called outside a run: only workflow code may; "
            f"in tests call {operation.__name__}.fn(romulus.Operation.for_testing(), …)"
        )
    return instance


def _block(instance: Instance, operation: _OperationBase, spelling: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not instance.in_bridge():
        raise WrongColour(f"{operation.name} was called as in a def workflow, but this workflow is async: write {spelling}")
    return instance.blocking(instance.operation(operation.spec, args, kwargs))
