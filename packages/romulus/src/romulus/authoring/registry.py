"""What an App can run: its workflows, the steps they reach, its resources, and how its values are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from romulus.core.commands import OperationSpec, StepSpec, WorkflowSpec
from romulus.core.errors import ConfigurationError, DefinitionError, NotDeterministic, UnknownWorkflow
from romulus.core.values import Codec, Vault

from .operation import OperationFunction, SyncOperationFunction
from .resource import Resource
from .scan import Refusal, reach
from .step import Step, SyncStep
from .workflow import AnyWorkflow

Declared: TypeAlias = Step[..., Any] | SyncStep[..., Any] | OperationFunction[..., Any] | SyncOperationFunction[..., Any]
value_max_bytes_default = 2 * 1024 * 1024


class Registry:
    """Everything an App knows by name. Names are unique: two functions cannot answer to one."""

    def __init__(
        self,
        workflows: Iterable[AnyWorkflow[..., Any]],
        steps: Iterable[Declared] = (),
        resources: Iterable[Resource[Any]] = (),
        *,
        codec: Codec | None = None,
        value_max_bytes: int = value_max_bytes_default,
    ) -> None:
        """Take what is given and what it reaches by name.

        Raises:
            DefinitionError: a name is taken twice, or something given is not what it should be.
            NotDeterministic: workflow code calls what a replay cannot repeat.
        """
        self.workflows: dict[tuple[str, str], WorkflowSpec] = {}
        self.digests: dict[tuple[str, str], str] = {}  # of each workflow's code
        self.steps: dict[str, StepSpec] = {}
        self.operations: dict[str, OperationSpec] = {}
        self.operating: set[tuple[str, str]] = set()  # workflows that may call operations
        self._by_function: dict[Callable[..., Any], str] = {}  # name of the step declared from it
        self.resources = _resources(resources)
        self.vault = Vault(codec, _bound(value_max_bytes))
        for step in steps:
            if isinstance(step, OperationFunction | SyncOperationFunction):
                self._add_operation(step.spec)
            else:
                self._add_step(_spec_of(step, StepSpec, "steps", "@romulus.step"))
        refusals: list[Refusal] = []
        anywhere = bool(self.operations)  # given by name: any workflow may find them
        for workflow in workflows:
            self._add_workflow(_spec_of(workflow, WorkflowSpec, "workflows", "@romulus.workflow"), refusals)
        if anywhere:
            self.operating.update(self.workflows)
        _refuse(refusals)
        specs: list[WorkflowSpec | StepSpec | OperationSpec] = [*self.workflows.values(), *self.steps.values(), *self.operations.values()]
        for spec in specs:
            spec.arguments.prepare()  # the first run would hold up the loop with it, for as long as a thousand steps take
            spec.value.prepare()

    def workflow(self, name: str, version: str) -> WorkflowSpec:
        """Return the workflow of that name and version.

        Raises:
            UnknownWorkflow: there is none; the message names those there are.
        """
        try:
            return self.workflows[name, version]
        except KeyError:
            known = ", ".join(f"{known} version {at}" for known, at in sorted(self.workflows)) or "none"
            raise UnknownWorkflow(f"no workflow {name!r} version {version!r} here (known: {known}): add it to App(workflows=[…])") from None

    def admit(self, step: StepSpec) -> None:
        """Accept a step that a run calls: one declared here, or a copy of it with other options.

        Raises:
            DefinitionError: the App does not know the step; the message names the remedy.
        """
        if step.fn not in self._by_function:
            raise DefinitionError(f"step {step.name!r} is not known to the App: add it to App(steps=[…])")
        if self.steps.get(step.name, step).fn is not step.fn:
            raise DefinitionError(
                f"step {step.name!r} is another function's name in the App: give the copy one of its own with .options(name=)"
            )

    def admit_operation(self, operation: OperationSpec) -> None:
        """Accept an operation that a run calls: one declared here, or a copy of it with other options.

        Raises:
            DefinitionError: the App does not know the operation; the message names the remedy.
        """
        known = self.operations.get(operation.name)
        if known is None or known.fn is not operation.fn:
            raise DefinitionError(f"operation {operation.name!r} is not known to the App: add it to App(steps=[…])")

    def _add_workflow(self, spec: WorkflowSpec, refusals: list[Refusal]) -> None:
        key = (spec.name, spec.version)
        known = self.workflows.setdefault(key, spec)
        if known.fn is not spec.fn:
            raise DefinitionError(
                f"two workflows are named {spec.name!r} version {spec.version!r} ({_place(known)} and {_place(spec)}): "
                "give one of them name= or version="
            )
        if key in self.digests:
            return
        reached = reach(spec)
        self.digests[key] = reached.digest
        refusals.extend(reached.refusals)
        for step in reached.steps:
            self._add_step(step.spec)
        for operation in reached.operations:
            self._add_operation(operation.spec)
            self.operating.add(key)
        for workflow in reached.workflows:
            self._add_workflow(workflow.spec, refusals)

    def _add_operation(self, spec: OperationSpec) -> None:
        known = self.operations.setdefault(spec.name, spec)
        if known.fn is not spec.fn:
            raise DefinitionError(
                f"two operations are named {spec.name!r} ({_place(known)} and {_place(spec)}): give one of them another with name="
            )

    def _add_step(self, spec: StepSpec) -> None:
        known = self.steps.setdefault(spec.name, spec)
        if known.fn is not spec.fn:
            raise DefinitionError(
                f"two steps are named {spec.name!r} ({_place(known)} and {_place(spec)}): give one of them another with name="
            )
        self._by_function.setdefault(spec.fn, spec.name)


def _spec_of(given: object, kind: type[Any], argument: str, decorator: str) -> Any:
    spec = getattr(given, "spec", None)
    if not isinstance(spec, kind):
        name = getattr(given, "__qualname__", None) or repr(given)
        raise DefinitionError(f"{name} is among App({argument}=[…]) but is not one: decorate it with {decorator}")
    return spec


def _resources(given: Iterable[Resource[Any]]) -> list[Resource[Any]]:
    named: dict[str, Resource[Any]] = {}
    for resource in given:
        if not isinstance(resource, Resource):  # pyright: ignore[reportUnnecessaryIsInstance]  # users without a type checker
            raise DefinitionError(f"{resource!r} is among App(resources=[…]) but is not one: decorate it with @romulus.resource")
        if named.setdefault(resource.name, resource) is not resource:
            raise DefinitionError(f"two resources are named {resource.name!r}: rename one of the functions")
    return list(named.values())


def _bound(value_max_bytes: int) -> int:
    if isinstance(value_max_bytes, bool) or not isinstance(value_max_bytes, int) or value_max_bytes < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"value_max_bytes must be a number of bytes above 0, not {value_max_bytes!r}")
    return value_max_bytes


def _refuse(refusals: list[Refusal]) -> None:
    if refusals:
        lines = dict.fromkeys(str(refusal) for refusal in refusals)
        raise NotDeterministic("workflow code calls what a replay cannot repeat:\n" + "\n".join(f"  {line}" for line in lines))


def _place(spec: StepSpec | OperationSpec | WorkflowSpec) -> str:
    return f"{spec.fn.__module__}.{spec.fn.__qualname__}"
