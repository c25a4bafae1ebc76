"""What code asks about the run it belongs to: who it is, what time it is, its random numbers, its attempt."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec
from uuid import UUID

from romulus.core.duration import to_datetime
from romulus.core.errors import NotInRun
from romulus.core.instance import RunInfo
from romulus.core.seeds import derive

from .checks import check_name, check_workflow
from .place import here, workflow_code
from .workflow import AnyWorkflow, StartOptions, check_attributes

if TYPE_CHECKING:
    from .resource import ResourceSet

P = ParamSpec("P")


class Attempt:
    """One try at a step, as its body sees it through `current_attempt()`."""

    __slots__ = (
        "_beat", "_connection", "_keep", "_key", "_seed", "cancelled", "fence", "last_heartbeat", "number",
        "resources", "run", "seq", "step",
    )  # fmt: skip

    run: RunInfo
    step: str  # its name
    seq: int  # of the command in its run
    number: int  # 1 the first; every attempt has the next one
    fence: int  # the claim it was made under, for conditional writes in your own systems
    cancelled: bool  # the run was cancelled or its claim lost: the outcome is no longer wanted
    last_heartbeat: Any  # details of the attempt before's last heartbeat, None if there were none
    resources: ResourceSet | None

    def __init__(
        self,
        run: RunInfo,
        step: str,
        seq: int,
        number: int,
        fence: int,
        seed: bytes,
        *,
        last_heartbeat: Any = None,
        connection: Any = None,
        resources: ResourceSet | None = None,
        beat: Callable[[object], None] | None = None,
        key: str | None = None,
        keep: Callable[[dict[str, object]], None] | None = None,
    ) -> None:
        self.run, self.step, self.seq, self.number, self.fence = run, step, seq, number, fence
        self.cancelled, self.last_heartbeat, self.resources = False, last_heartbeat, resources
        self._seed, self._connection, self._beat, self._key, self._keep = seed, connection, beat, key, keep

    @property
    def run_id(self) -> str:
        """The ID of the run the step belongs to."""
        return self.run.id

    @property
    def idempotency_key(self) -> str:
        """A key for the outside world: equal in every attempt of this command, in no other command or generation."""
        return self._key or derive(self._seed, "attempt", self.seq).hex()

    @property
    def connection(self) -> Any:
        """The store's connection inside the transaction that also records the outcome; only with `@romulus.step(transaction=True)`.

        Raises:
            NotInRun: the step is not transactional.
        """
        if self._connection is None:
            raise NotInRun(f"step {self.step!r} has no connection: declare it @romulus.step(transaction=True)")
        return self._connection

    def heartbeat(self, details: object = None) -> None:
        """Say that the attempt is alive; the next attempt finds *details* in `last_heartbeat`. From any thread.

        Raises:
            SerializationError: the details cannot be stored.
        """
        if self._beat is not None:
            self._beat(details)

    def keep(self, exchange: dict[str, object]) -> None:
        """Keep what went over the wire as evidence of the operation that this is a send of; a step keeps nothing."""
        if self._keep is not None:
            self._keep(exchange)

    def __repr__(self) -> str:
        return f"<attempt {self.number} at step {self.step!r} of run {self.run.id!r}>"


attempt_var: ContextVar[Attempt | None] = ContextVar("romulus_attempt", default=None)  # the worker sets it around a body


def current_attempt() -> Attempt:
    """Return the attempt whose body calls this.

    Raises:
        NotInRun: not called from a step that a run called.
    """
    attempt = attempt_var.get()
    if attempt is None or here() is not None:
        raise NotInRun("romulus.current_attempt() is known only inside a step that a run called")
    return attempt


def current_run() -> RunInfo:
    """Return the run that the calling workflow or step code belongs to.

    Raises:
        NotInRun: called outside a run.
    """
    instance = here()
    if instance is not None:
        return instance.info
    attempt = attempt_var.get()
    if attempt is None:
        raise NotInRun("romulus.current_run() is known only inside a run: call it from workflow or step code")
    return attempt.run


def now() -> datetime:
    """Return the run's time, in UTC: that of the last thing recorded, alike on replay.

    Raises:
        NotInRun: called outside workflow code.
    """
    return to_datetime(workflow_code("romulus.now()", "elsewhere use datetime.now(timezone.utc)").now)


def uuid4() -> UUID:
    """Return a random UUID, alike on replay.

    Raises:
        NotInRun: called outside workflow code.
    """
    return workflow_code("romulus.uuid4()", "elsewhere use uuid.uuid4()").uuid4()


def rng() -> Random:
    """Return the run's random numbers, alike on replay. Not for secrets.

    Raises:
        NotInRun: called outside workflow code.
    """
    return workflow_code("romulus.rng()", "elsewhere use the random module").rng()


def set_attributes(**values: str | int | bool) -> None:
    """Set attributes of this run, to find it by; those not named stay. They are stored with what the run does next.

    A run has at most 64 attributes: text of up to 1,000 characters, 64-bit integers and booleans.

    Raises:
        NotInRun: called outside workflow code.
        ValueError: not what attributes can be, or too many; nothing is set.
    """
    instance = workflow_code("romulus.set_attributes()", "elsewhere give attributes when you start a run")
    checked = check_attributes(values)
    check_attributes({**instance.attributes_stored, **instance.attributes, **checked})
    instance.set_attributes(checked)


def patched(id: str) -> bool:  # noqa: A002 - a public name
    """Return whether this run takes the new side of a change: False for runs that passed here before it was deployed.

    The answer is recorded at the first call and stays. *id* names the change: up to 200 characters.

    Raises:
        NotInRun: called outside workflow code.
    """
    return workflow_code("romulus.patched()", "a step's code may simply change").patched(check_name(id, "patch ID"))


def continue_as_new(workflow: AnyWorkflow[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
    """End this generation and begin the run's next one, with an empty journal, as *workflow* with these arguments.

    After a cancel or the run's own timeout there is no next one: the run ends cancelled, or failed.

    Raises:
        NotInRun: called outside workflow code.
        ValueError: the workflow carries start options other than a version; the run keeps its own.
    """
    instance = workflow_code("romulus.continue_as_new()", "elsewhere start a run through a client")
    if check_workflow(workflow).start_options != StartOptions(version=workflow.start_options.version):
        raise ValueError("continue_as_new keeps the run's ID and options: of .options() only version= can be given")
    instance.continue_as_new(workflow.name, workflow.version, workflow.spec.arguments.dump(args, kwargs))
