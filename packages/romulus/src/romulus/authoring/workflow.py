"""`@romulus.workflow`: code whose runs survive a restart, and the options a start takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast, overload

from romulus.core.commands import WorkflowSpec
from romulus.core.duration import Duration, InvalidSetting, instant, micros
from romulus.core.errors import WrongColour
from romulus.core.text import check_text
from romulus.core.values import ArgumentsCodec, ValueCodec

from .checks import check_function, check_name, check_run_id, check_timeout, declared_name, is_async, options_named, refuse_owner
from .children import ELSEWHERE, child_call
from .place import workflow_code

P = ParamSpec("P")
T = TypeVar("T")
Co: TypeAlias = Coroutine[Any, Any, T]
ParentClose: TypeAlias = Literal["cancel", "abandon", "terminate"]
_CLOSES: tuple[ParentClose, ...] = ("cancel", "abandon", "terminate")
KEEP: Any = object()  # an option that was not given

attributes_max = 64
attribute_chars_max = 1000
INTEGER_MAX = 2**63 - 1  # of what both stores keep
PRIORITY_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is to be started. Times are µs; None is "not given"."""

    id: str | None = None
    version: str | None = None
    priority: int = 0  # higher is claimed first
    delay: int | None = None
    start_at: int | None = None  # store µs
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict[str, str | int | bool])
    timeout: int | None = None  # of the whole run; None: the workflow's own
    parent_close: ParentClose = "cancel"  # of a child: what becomes of it when its parent ends before it


class AnyWorkflow(Generic[P, T]):
    """A workflow of either colour: what start, run and the like take."""

    spec: WorkflowSpec
    start_options: StartOptions

    def __init__(self, spec: WorkflowSpec, start_options: StartOptions | None = None) -> None:
        update_wrapper(cast("Callable[..., Any]", self), spec.fn, updated=())
        self.spec = spec
        self.start_options = start_options or StartOptions()

    @property
    def name(self) -> str:
        """The name its runs are found under."""
        return self.spec.name

    @property
    def version(self) -> str:
        """The version a start begins: the declared one unless `.options(version=)` names another."""
        return self.start_options.version or self.spec.version

    @options_named(".options() of a workflow")
    def options(
        self,
        *,
        id: str = KEEP,  # noqa: A002 - a public name
        version: str = KEEP,
        priority: int = KEEP,
        delay: Duration = KEEP,
        start_at: datetime = KEEP,
        attributes: Mapping[str, str | int | bool] = KEEP,
        timeout: Duration = KEEP,
        parent_close: ParentClose = KEEP,
    ) -> Self:
        """Return a copy that starts runs with these options; what is not given stays.

        Args:
            id: the run's ID; starting it again with equal arguments gives the same run.
            version: another declared version of the workflow.
            priority: higher is claimed first.
            delay: seconds or timedelta from now until the run is due.
            start_at: when it is due; timezone-aware. Not together with delay.
            attributes: up to 64 names with text, integers or booleans, to find the run by.
            timeout: seconds or timedelta the whole run may take.
            parent_close: what becomes of it as a child when its parent ends first: it is asked to cancel, terminated, or left alone.
        """
        given = {"id": id, "version": version, "priority": priority, "delay": delay, "start_at": start_at}
        given |= {"attributes": attributes, "timeout": timeout, "parent_close": parent_close}
        checked = {key: _OPTIONS[key](value) for key, value in given.items() if value is not KEEP}
        return type(self)(self.spec, _consistent(replace(self.start_options, **checked)))

    def __set_name__(self, owner: type, name: str) -> None:
        refuse_owner(owner, name, self.spec.fn, "workflow")

    def __repr__(self) -> str:
        return f"<romulus workflow {self.name} version {self.version}>"


class Workflow(AnyWorkflow[P, T]):
    """A workflow from `async def`. Called in an async workflow it is a child; in a `def` one write `workflow.blocking(…)`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the outcome of a child of this run once awaited: started then, and recorded.

        Raises:
            ChildFailed: it ended failed, cancelled or terminated. RunConflict: the chosen ID belongs to another run.
            NotInRun: called outside workflow code. WrongColour: called in a `def` workflow. TooDeep, UnknownWorkflow.
        """
        instance = workflow_code(f"a call of workflow {self.name!r}", ELSEWHERE)
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is an async def workflow in a def workflow: write {_written(self)}.blocking(…)")
        return instance.child(child_call(instance, self, args, kwargs))

    def blocking(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the outcome of a child, from a `def` workflow; raises as a plain call does."""
        return cast("T", _block(self, args, kwargs, f"await {_written(self)}(…)"))


class SyncWorkflow(AnyWorkflow[P, T]):
    """A workflow from `def`. Called in a `def` workflow it is a child; in an async one write `await workflow.aio(…)`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the outcome of a child of this run.

        Raises:
            ChildFailed: it ended failed, cancelled or terminated. RunConflict: the chosen ID belongs to another run.
            NotInRun: called outside workflow code. WrongColour: called in an async workflow. TooDeep, UnknownWorkflow.
        """
        return cast("T", _block(self, args, kwargs, f"await {_written(self)}.aio(…)"))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Co[T]:
        """Return the outcome of a child once awaited, from an async workflow; raises as a plain call does."""
        instance = workflow_code(f"a call of workflow {self.name!r}", ELSEWHERE)
        if instance.in_bridge():
            raise WrongColour(f"{self.name} is a def workflow in a def workflow: write {_written(self)}(…)")
        return instance.child(child_call(instance, self, args, kwargs))


class WorkflowDecorator(Protocol):
    """What `@romulus.workflow(…)` returns."""

    @overload
    def __call__(self, fn: Callable[P, Co[T]], /) -> Workflow[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[P, T], /) -> SyncWorkflow[P, T]: ...


@overload
def workflow(fn: Callable[P, Co[T]], /) -> Workflow[P, T]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def workflow(fn: Callable[P, T], /) -> SyncWorkflow[P, T]: ...
@overload
def workflow(*, name: str | None = None, version: str = "1", timeout: Duration | None = None) -> WorkflowDecorator: ...
@options_named("@romulus.workflow")
def workflow(fn: Any = KEEP, /, *, name: str | None = None, version: str = "1", timeout: Duration | None = None) -> Any:
    """Declare a workflow: deterministic code whose steps, timers and waits are recorded, so that its runs survive a restart.

    Args:
        name: what its runs are found under; the function's own name unless given.
        version: two versions live side by side as two functions with one name.
        timeout: seconds or timedelta a whole run may take; None is no limit.

    Raises:
        DefinitionError: the function cannot be a workflow.
    """
    limit = check_timeout(timeout, "workflow timeout")

    def declare(function: object) -> Workflow[..., Any] | SyncWorkflow[..., Any]:
        checked = check_function(function, "workflow")
        spec = _spec(checked, declared_name(checked, name, "workflow"), check_name(version, "workflow version"), limit)
        return Workflow(spec) if spec.is_async else SyncWorkflow(spec)

    return declare if fn is KEEP else declare(fn)


def _spec(fn: Callable[..., Any], name: str, version: str, timeout: int | None) -> WorkflowSpec:
    where = f"workflow {name!r} ({fn.__module__}.{fn.__qualname__})"
    return WorkflowSpec(
        name=name,
        version=version,
        fn=fn,
        is_async=is_async(fn),
        timeout=timeout,
        arguments=ArgumentsCodec(fn, where),
        value=ValueCodec.returned_by(fn, where),
    )


def _written(workflow: AnyWorkflow[..., Any]) -> str:
    return workflow.spec.fn.__name__


def _block(workflow: AnyWorkflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], spelling: str) -> Any:
    """Return a child's outcome to a `def` workflow; *spelling* is what an async one must write."""
    instance = workflow_code(f"a call of workflow {workflow.name!r}", ELSEWHERE)
    if not instance.in_bridge():
        raise WrongColour(f"{workflow.name} was called as in a def workflow, but this workflow is async: write {spelling}")
    return instance.blocking(instance.child(child_call(instance, workflow, args, kwargs)))


def _parent_close(value: object) -> ParentClose:
    for known in _CLOSES:
        if value == known:
            return known
    raise InvalidSetting(f'parent_close is {value!r}; use "cancel", "terminate" or "abandon"')


def _integer(value: object, field: str, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSetting(f"{field} must be an int, not {type(value).__name__}")
    if abs(value) > largest:
        raise InvalidSetting(f"{field} must be between -{largest} and {largest}, not {value}")
    return value


def check_attributes(values: Mapping[str, str | int | bool]) -> dict[str, str | int | bool]:
    """Return *values* if they can be a run's attributes: up to 64 names with text (1,000 characters), 64-bit integers or booleans."""
    if len(values) > attributes_max:
        raise InvalidSetting(f"a run has at most {attributes_max} attributes, not {len(values)}")
    return {check_name(key, "attribute name"): _attribute(key, value) for key, value in values.items()}


def _attribute(name: str, value: object) -> str | int | bool:
    field = f"attribute {name!r}"
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, field, attribute_chars_max)
    if isinstance(value, int):
        return _integer(value, field, INTEGER_MAX)
    raise InvalidSetting(f"{field} must be a str, int or bool, not {type(value).__name__}")


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "id": check_run_id,
    "version": lambda value: check_name(value, "workflow version"),
    "priority": lambda value: _integer(value, "priority", PRIORITY_MAX),
    "delay": lambda value: micros(value, "delay"),
    "start_at": lambda value: instant(value, "start_at"),
    "attributes": check_attributes,
    "timeout": lambda value: check_timeout(value, "workflow timeout"),
    "parent_close": _parent_close,
}


def _consistent(options: StartOptions) -> StartOptions:
    if options.delay is not None and options.start_at is not None:
        raise InvalidSetting("give delay or start_at, not both")
    return options
