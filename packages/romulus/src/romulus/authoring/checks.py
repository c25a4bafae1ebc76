"""What may be declared: functions, names and durations, each refused with its remedy at the decorator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar, cast, get_origin

from romulus.core.children import RESERVED, may_choose
from romulus.core.commands import OperationSpec, StepSpec, WorkflowSpec
from romulus.core.duration import Duration, InvalidSetting, micros
from romulus.core.errors import DefinitionError
from romulus.core.pools import DEFAULT_POOL
from romulus.core.text import InvalidText, check_text

from .place import here

F = TypeVar("F", bound=Callable[..., Any])
W = TypeVar("W")

name_chars_max = 200  # of workflows, versions, steps and events
id_chars_max = 200  # of events, and of runs as a start may choose it
run_id_chars_max = 250  # of runs: what a start may choose, and room for the endings of forks; of correlation, so that each is one
RESERVED_EVENTS = ("romulus.", "remus.")


def check_function(fn: object, what: str) -> FunctionType:
    """Return *fn* if it is a plain `def` or `async def` function that can be a *what* ("step", "workflow").

    Raises:
        DefinitionError: it is something else; the message says what to write instead.
    """
    refused = _refused_object(fn, what)
    if refused is None:
        assert isinstance(fn, FunctionType)
        refused = _refused_function(fn, what)
    if refused is not None:
        raise DefinitionError(refused)
    return fn  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # a FunctionType, or refused above


def check_workflow(value: W) -> W:
    """Return *value* if it is a workflow.

    Raises:
        DefinitionError: it is something else; the message says what to write instead.
    """
    if isinstance(getattr(value, "spec", None), WorkflowSpec):
        return value
    if isinstance(getattr(value, "spec", None), StepSpec | OperationSpec):
        raise DefinitionError(f"{getattr(value, 'name', value)!r} is no workflow: a workflow's code calls it, and the workflow is started")
    raise DefinitionError(f"a run is started of a workflow, not of {type(value).__name__}: decorate the function with @romulus.workflow")


def is_async(fn: Callable[..., Any]) -> bool:
    """Return whether *fn* is an `async def` function."""
    return inspect.iscoroutinefunction(fn)


def is_method(fn: FunctionType) -> bool:
    """Return whether *fn* is written in a class body and takes the instance or class first."""
    within = fn.__qualname__.rpartition(".")[0]
    first = next(iter(inspect.signature(fn).parameters), "")
    return bool(within) and not within.endswith("<locals>") and first in ("self", "cls")


def refuse_owner(owner: type, name: str, fn: Callable[..., Any], what: str) -> None:
    """Refuse *fn* as a method whose first parameter is not called self: `__set_name__` sees it bound in its own class."""
    if fn.__qualname__ == f"{owner.__qualname__}.{name}":
        raise DefinitionError(
            f"{what} {name!r} is declared in class {owner.__qualname__}: declare it at module level, or below @staticmethod"
        )


def declared_name(fn: FunctionType, name: str | None, what: str) -> str:
    """Return the name *fn* is declared under: *name*, else its own."""
    if name is None and fn.__name__ == "<lambda>":
        raise DefinitionError(f"a lambda has no name to be found under: declare the {what} with def, or give name=")
    return check_name(fn.__name__ if name is None else name, f"{what} name")


def check_name(value: object, field: str) -> str:
    """Return *value* if it can name a workflow, version, step or event: non-empty text of at most 200 characters."""
    return _text(value, field, name_chars_max)


def check_pool(value: object, field: str) -> str | None:
    """Return *value* if it can name a pool; None: the default one, whose workers have the runs."""
    return None if value is None or value == DEFAULT_POOL else check_name(value, field)


def check_id(value: object, field: str) -> str:
    """Return *value* if it can be an event's ID, or a run's at its start: non-empty text of at most 200 characters."""
    return _text(value, field, id_chars_max)


def check_correlation_id(value: object, field: str) -> str:
    """Return *value* if it can be a correlation ID: the ID of any run, forks included, or other text of at most 250 characters."""
    return _text(value, field, run_id_chars_max)


def check_run_id(value: object) -> str:
    """Return *value* if a start from here may choose it as its run's ID."""
    run_id = check_id(value, "run ID")
    if RESERVED not in run_id:
        return run_id
    parent = here()
    if parent is None:
        raise InvalidText(f"run ID {run_id!r} has a {RESERVED!r}: such IDs are made for children and forks; use another character")
    if not may_choose(parent.info.id, run_id):
        raise InvalidText(
            f"run ID {run_id!r} has a {RESERVED!r}: such IDs are made for children and forks; use another character, or let the ID go on "
            f'after the run\'s own: f"{{romulus.current_run().id}}-…", with a separator and no other {RESERVED!r}'
        )
    return run_id


def check_event_name(value: object) -> str:
    """Return *value* if users may send and await events of that name."""
    name = check_name(value, "event name")
    if name.startswith(RESERVED_EVENTS):
        raise InvalidText(f"event name {name!r} is reserved: names beginning with 'romulus.' or 'remus.' belong to the engine; use another")
    return name


def check_flag(value: object, field: str) -> bool:
    """Return *value* if it is True or False."""
    if not isinstance(value, bool):
        raise InvalidSetting(f"{field} must be True or False, not {value!r}")
    return value


def check_timeout(value: Duration | None, field: str, none: str = "means no limit") -> int | None:
    """Return *value* in µs; None is no limit, or what *none* says, and nothing can be done in no time at all."""
    if value is None:
        return None
    timeout = micros(value, field)
    if timeout == 0:
        raise InvalidSetting(f"{field} must be above 0; None {none}")
    return timeout


def options_named(what: str) -> Callable[[F], F]:
    """Let an unknown option be answered with the known ones: a decorator for functions that take options by keyword only."""

    def decorate(fn: F) -> F:
        parameters = inspect.signature(fn).parameters.values()
        known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]

        @wraps(fn)
        def checked(*args: Any, **options: Any) -> Any:
            for name in options:
                if name not in known:
                    raise TypeError(f"{what} has no option {name!r}; it has {', '.join(known)}")
            return fn(*args, **options)

        return checked  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # same signature, one more refusal

    return decorate


def _a(what: str) -> str:
    return f"an {what}" if what.startswith("o") else f"a {what}"


def _text(value: object, field: str, chars_max: int) -> str:
    if value == "":
        raise InvalidText(f"{field} must not be empty")
    return check_text(cast("str", value), field, chars_max)


def _refused_object(fn: object, what: str) -> str | None:
    if isinstance(fn, FunctionType):
        return None
    if isinstance(fn, staticmethod):
        return f"put @staticmethod above the {what} decorator, not below it"
    if isinstance(fn, classmethod):
        return f"a class method cannot be {_a(what)}: write a function, and get the object from a resource (@romulus.resource) inside it"
    if inspect.ismethod(fn):
        return f"{fn.__qualname__} is a method: {_a(what)} is a function; get the object from a resource (@romulus.resource) inside it"
    if isinstance(getattr(fn, "spec", None), StepSpec | OperationSpec | WorkflowSpec):
        return f"{getattr(fn, 'name', fn)!r} is declared already: decorate the function once"
    if not callable(fn):
        return f"{_a(what)} is made from a function, not from {type(fn).__name__}; options are given by keyword"
    return f"{_a(what)} is made from a def or async def function, not from {type(fn).__name__}: wrap the call in a function"


def _refused_function(fn: FunctionType, what: str) -> str | None:
    name = fn.__qualname__
    if is_method(fn):
        return f"{name} is a method: {_a(what)} is a function; get the object from a resource (@romulus.resource) inside it"
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        return f"{name} is a generator function: {_a(what)} has one outcome; return a list instead of yielding"
    if is_async(fn):
        return None
    if inspect.iscoroutinefunction(inspect.unwrap(fn)):
        return f"{name} is async def behind a decorator whose wrapper is def: make that wrapper async def and await inside it"
    if _returns_coroutine(fn):
        return f"{name} is a def that returns a coroutine: declare it async def"
    return None


def _returns_coroutine(fn: FunctionType) -> bool:
    try:
        declared: Any = fn.__annotations__.get("return")
    except NameError:  # evaluated on access from 3.14 on: looked at again when the codec resolves it
        return False
    if isinstance(declared, str):
        return re.match(r"(\w+\.)*Coroutine\b", declared) is not None
    return get_origin(declared) is Coroutine or declared is Coroutine
