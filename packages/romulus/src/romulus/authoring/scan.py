"""The scan of workflow code when an App is built: which steps and workflows it reaches, what it may not call, and its digest.

It follows plain functions of the user's package reachable by name (globals, closures, attributes of modules and classes) and never enters
the body of a step. It refuses what is *called*; a name that is only mentioned is fine.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import getattr_static
from itertools import islice
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final, cast

from romulus.core.commands import OperationSpec, StepSpec, WorkflowSpec

from .scan_code import Reference, Unloaded, references, scope_of
from .scan_digest import constant, declared_part, digest_of, function_part
from .scan_refused import Refused

_container_max = 1_000  # entries of a dict, list, tuple or set that are looked at for steps
_wrapped_max = 32  # decorators around one function
_ENGINE: Final = "romulus"  # workflows that ship with it (the demo) reach their own module alone
_PLAIN = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call in workflow code that a replay cannot repeat."""

    function: str
    line: int
    call: str  # its full name, such as `time.sleep`
    remedy: str
    file: str = ""  # without its folders

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line}) calls {self.call}: {self.remedy}"


@dataclass(slots=True)
class Reached:
    """What the code of one workflow reaches by name."""

    steps: list[Any] = field(default_factory=list[Any])  # each has `.spec`, a StepSpec
    operations: list[Any] = field(default_factory=list[Any])  # each has `.spec`, an OperationSpec
    workflows: list[Any] = field(default_factory=list[Any])  # each has `.spec`, a WorkflowSpec
    digest: str = ""
    refusals: list[Refusal] = field(default_factory=list[Refusal])


def reach(workflow: WorkflowSpec) -> Reached:
    """Return what *workflow* reaches, the calls in it that are refused, and the digest of its code."""
    scan = _Scan(workflow)
    scan.run()
    scan.reached.digest = digest_of(scan.parts)
    return scan.reached


class _Scan:
    def __init__(self, workflow: WorkflowSpec) -> None:
        self.reached = Reached()
        self.parts = [declared_part("workflow", f"{workflow.name} {workflow.version}", workflow.fn)]
        self.refused = Refused()
        self.seen: dict[tuple[int, bool], object] = {}  # by id; holding the object keeps the id its own
        self.waiting: deque[tuple[FunctionType, bool]] = deque()  # and whether its calls are refused
        own = list(_functions(workflow.fn))
        self.home = _home(own[-1].__globals__)  # the innermost one is the user's, whatever decorates it
        for fn in own:
            self._follow(fn, refuse=True)

    def run(self) -> None:
        """Read every function that is reached, in the order first named."""
        while self.waiting:
            fn, refuse = self.waiting.popleft()
            self.parts.append(function_part(fn))
            for reference in references(fn.__code__, scope_of(fn)):
                if refuse and reference.called:
                    self._judge(fn, reference)
                self._meet(reference, refuse=refuse)

    def _judge(self, fn: FunctionType, reference: Reference) -> None:
        rule = self.refused.rule(reference.value, bare=reference.bare)
        if rule is not None:
            file = PurePath(fn.__code__.co_filename).name
            self.reached.refusals.append(Refusal(f"{fn.__module__}.{fn.__qualname__}", reference.line, *rule, file))

    def _meet(self, reference: Reference, *, refuse: bool) -> None:
        """Take in one object that code names."""
        value = reference.value
        if self._declared(value):
            return
        if isinstance(value, _PLAIN) and self._is_ours(reference):
            self.parts.append(f"{reference.name} = {constant(value)}")
        if isinstance(value, dict | list | tuple | set | frozenset):
            self._open(value)
        for fn in _functions(value):
            self._follow(fn, refuse=refuse)
        for fn in _methods(value):
            self._follow(fn, refuse=False)  # the class may be only mentioned, its methods a step's business

    def _is_ours(self, reference: Reference) -> bool:
        """Return whether a plain value is part of the user's code: `__file__` and `os.name` are the machine's."""
        if isinstance(reference.value, Unloaded) or reference.name.endswith("__"):
            return False
        match reference.owner:
            case None:
                return True
            case ModuleType():
                return _home(vars(reference.owner)) == self.home
            case type():
                return _home_of_class(reference.owner) == self.home
            case _:
                return False

    def _declared(self, value: Any) -> bool:
        """Return whether *value* is a step or workflow, having noted it."""
        spec = _spec(value)
        if spec is None:
            return False
        if self._first(value):
            kind, found = self._kind(spec)
            found.append(value)
            self.parts.append(declared_part(kind, spec.name, spec.fn))
        return True

    def _kind(self, spec: StepSpec | OperationSpec | WorkflowSpec) -> tuple[str, list[Any]]:
        match spec:
            case StepSpec():
                return "step", self.reached.steps
            case OperationSpec():
                return "operation", self.reached.operations
            case WorkflowSpec():
                return "workflow", self.reached.workflows

    def _open(self, container: Any) -> None:
        """Note the steps and workflows that a container holds; functions in it may be for steps, so they are left alone."""
        found = [each for each in islice(_values(container), _container_max) if _spec(each) is not None]
        for each in sorted(found, key=lambda each: str(each.spec.name)):
            self._declared(each)

    def _follow(self, fn: FunctionType, *, refuse: bool) -> None:
        if _home(fn.__globals__) != self.home or (not refuse and (id(fn), True) in self.seen):
            return
        if self._first(fn, refuse=refuse):
            self.waiting.append((fn, refuse))

    def _first(self, value: object, *, refuse: bool = False) -> bool:
        known = (id(value), refuse) in self.seen
        self.seen[id(value), refuse] = value
        return not known


def _spec(value: Any) -> StepSpec | OperationSpec | WorkflowSpec | None:
    if getattr_static(value, "spec", None) is None:  # looked up without running a proxy's code
        return None
    try:
        spec = value.spec
    except Exception:  # noqa: BLE001  # a property of the user's may fail in any way: it is no step then
        return None
    return spec if isinstance(spec, StepSpec | OperationSpec | WorkflowSpec) else None


def _values(container: Any) -> tuple[Any, ...]:
    return tuple(cast("Any", container).values() if isinstance(container, dict) else container)


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the function that *value* is or wraps, and those it wraps in turn, outermost first."""
    for _ in range(_wrapped_max):
        match value:
            case MethodType() | staticmethod() | classmethod():
                value = cast("Any", value).__func__
            case functools.partial():
                value = value.func
            case property():
                value = value.fget
            case _:
                if isinstance(value, FunctionType):
                    yield value
                value = getattr_static(value, "__wrapped__", None)


def _methods(value: Any) -> Iterator[FunctionType]:
    """Yield the functions written in a class and its bases; not those that dataclasses and the like generate."""
    for owner in value.__mro__ if isinstance(value, type) else ():
        for member in vars(owner).values():
            yield from (fn for fn in _functions(member) if not fn.__code__.co_filename.startswith("<"))


def _home(module: Mapping[str, Any]) -> str:
    """Return the top package that *module* (its namespace) is in, or the module's own name where there is no package."""
    name = str(module.get("__name__", ""))
    top = (module.get("__package__") or name).partition(".")[0]
    return name if top == _ENGINE else top


def _home_of_class(owner: type) -> str:
    return _home(vars(sys.modules.get(owner.__module__, ModuleType(owner.__module__))))
