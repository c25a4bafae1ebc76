"""Children: runs that workflow code starts, awaits or leaves to themselves."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from romulus.core.children import DEPTH_MAX, ChildState
from romulus.core.commands import ChildCall
from romulus.core.errors import TooDeep, WrongColour
from romulus.core.instance import Instance
from romulus.core.text import check_text

from .checks import check_run_id, check_workflow
from .place import workflow_code

if TYPE_CHECKING:
    from .workflow import AnyWorkflow

P = ParamSpec("P")
T = TypeVar("T")
Co: TypeAlias = Coroutine[Any, Any, T]

reason_chars_max = 2_000
ELSEWHERE = "elsewhere start it with a client, or with app.run()"


class ChildHandle(Generic[T]):
    """A child that was started: `await handle`, or `await handle.result()`, for its outcome."""

    def __init__(self, instance: Instance, run_id: str, state: ChildState) -> None:
        self.id = run_id
        self._instance, self._state = instance, state

    def __await__(self) -> Generator[Any, Any, T]:
        return self.result().__await__()

    def result(self) -> Co[T]:
        """Return what the child returned, once it has ended. Any number of tasks may wait; giving up the wait leaves the child alone.

        Raises:
            ChildFailed: it ended failed, cancelled or terminated, with what its code raised as the cause.
        """
        return cast("Co[T]", self._state.outcome())

    def cancel(self, reason: str = "") -> Co[None]:
        """Ask the child to end, as a client's cancel does; awaited until the request is stored."""
        return self._instance.cancel_child(self._state.seq, check_text(reason, "reason", reason_chars_max))

    def __repr__(self) -> str:
        return f"<child {self.id!r}>"


def start(workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Co[ChildHandle[T]]:
    """Start *workflow* as a child of this run and go on: returns a handle once the child is stored.

    Its options say under which ID, and with `parent_close` what becomes of it when this run ends first.

    Raises:
        RunConflict: the chosen ID belongs to another run.
        UnknownWorkflow: the App has no such workflow.
        TooDeep: this run has 50 parents above it.
        NotInRun: called outside workflow code.
        WrongColour: called in a `def` workflow.
    """
    instance = workflow_code("romulus.start()", ELSEWHERE)
    if instance.in_bridge():
        raise WrongColour("this is a def workflow: write romulus.blocking.start(…)")
    return started(instance, child_call(instance, workflow, args, kwargs))


async def started(instance: Instance, call: ChildCall) -> ChildHandle[Any]:
    """Issue the start of a child and return its handle."""
    run_id = await instance.start_child(call)
    return ChildHandle(instance, run_id, cast("ChildState", call.outcome))


def child_call(instance: Instance, workflow: AnyWorkflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ChildCall:
    """Return the child that *instance*'s code asks for, checked.

    Raises:
        TooDeep, TypeError, SerializationError. DefinitionError: it is no workflow. InvalidText: its ID is another run's to give.
    """
    spec, options = check_workflow(workflow).spec, workflow.start_options
    if instance.info.depth >= DEPTH_MAX:
        raise TooDeep(instance.info.id, DEPTH_MAX)
    if options.id is not None:
        check_run_id(options.id)  # again: another run's code may have given it
    return ChildCall(
        spec.name, workflow.version, spec.arguments.dump(args, kwargs), spec.value, options.id, options.parent_close,
        spec.timeout if options.timeout is None else options.timeout, options.priority, options.delay, options.start_at,
        json.dumps(dict(options.attributes), sort_keys=True, ensure_ascii=False, separators=(",", ":")),
    )  # fmt: skip
