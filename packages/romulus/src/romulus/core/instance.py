"""One generation in memory: its code on its own loop, fed with journal entries, and the commands it asks for."""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast
from uuid import UUID

from . import expecting
from .awaiting import awaiting
from .bridge import Bridges
from .calls import CancelAwaited, ChildAwaited, ChildStarted, OperationAwaited, StepAwaited, WaitAwaited, made
from .children import child_id, outcome_command
from .closing import unretrieved, wind_down
from .commands import (
    CancelChild,
    Cancelled,
    ChildCall,
    Command,
    Continued,
    Failed,
    OperationCall,
    OperationSpec,
    Outcome,
    Returned,
    StepSpec,
    TimerCall,
    WaitCall,
    WorkflowSpec,
)
from .draws import Draws
from .endings import ContinueAsNew, outcome_of
from .errors import ActivationTimeout, Dropped, NondeterminismRefused, WrongColour
from .handles import Timer
from .info import RunInfo
from .loop import Finalised, WorkflowLoop, refuse_finalisers
from .patches import Patches
from .record import ALONE, Entry, Kind

if TYPE_CHECKING:
    from random import Random

    from .seeds import Seeds
    from .values import Vault

__all__ = ["UNSET", "Instance", "RunInfo", "current"]

WITHDRAWN = "romulus.withdrawn "  # and a seq: a patch that says that the code gave an operation up before it was sent
UNSET: Any = object()  # deliver: the value is to be decoded from the entry


class Instance:
    """A generation's code, advanced entry by entry. Not thread-safe but for `interrupt`."""

    __slots__ = (
        "__weakref__",
        "_bridges",
        "_cancelled",
        "_draws",
        "_issued",
        "_main",
        "_notes",
        "_patches",
        "_replaying",
        "_reseeded",
        "_withdrawn",
        "attributes",
        "attributes_changed", "attributes_stored",
        "info",
        "loop",
        "now",
        "open",
        "outcome",
        "position",
        "seed",
        "seeds",
        "seq",
        "spec",
        "unsent",
        "vault",
    )  # fmt: skip

    def __init__(self, spec: WorkflowSpec, info: RunInfo, arguments: bytes, seeds: Seeds, started_at: int, vault: Vault) -> None:
        self.spec, self.info, self.seeds, self.vault = spec, info, seeds, vault
        self.seed = seeds.in_force(0)  # keys digests and draws
        self._reseeded = seeds.replaced
        self.seq = 0  # of the last command
        self.position = 0  # entries delivered and patches absorbed
        self.now = started_at  # store µs
        self.open: dict[int, Command] = {}
        self.attributes: dict[str, str | int | bool] = {}  # set by the code since the generation began
        self.attributes_stored: dict[str, str | int | bool] = {}  # by the record when it was taken up
        self.attributes_changed = False
        self.outcome: Outcome | None = None
        self.unsent: Callable[[int], bool] = _nothing_known  # whether nothing of operation *seq* was sent; the worker's answer
        self.loop = WorkflowLoop(self, started_at, int.from_bytes(self.seed, "big"))
        self._bridges = Bridges(self.loop)
        self._draws = Draws(self.seed)
        self._patches = Patches()
        self._issued: dict[int, Command] = {}
        self._withdrawn: list[Command] = []
        self._notes: list[object] = []
        self._main: asyncio.Task[None] | bytes = arguments  # bytes: not started
        self._cancelled = False  # a cancel was delivered
        self._replaying = False

    # ---- advancing -----------------------------------------------------------------------------

    def start(self, *, replaying: bool, patches: Sequence[str] = ()) -> None:
        """Run the code from its beginning to quiescence. *patches*: names of the PATCH entries recorded before anything else.

        Raises:
            Undecodable: the arguments do not fit the code.
            ActivationTimeout: the watchdog ended it.
        """
        if not isinstance(self._main, bytes):
            raise RuntimeError("the instance was started before")
        args, kwargs = self.spec.arguments.load(self._main)
        self._move(self.now, len(patches), patches, replaying)
        outside = self.loop.enter()
        try:
            self._main = self.loop.create_task(self._code(args, kwargs), context=contextvars.Context())
            self.loop.run()
        finally:
            self.loop.leave(outside)
        self._settle_end()

    def deliver(self, entry: Entry, *, replaying: bool, patches: Sequence[str] = (), value: Any = UNSET) -> None:
        """Feed one entry to the code and run it to quiescence.

        Args:
            entry: the next one, not a PATCH.
            replaying: it was recorded before; what `patched` is first asked is then False.
            patches: names of the PATCH entries recorded right behind it.
            value: what its body decodes to, where the caller knows.

        Raises:
            Mismatch: the code asked for something else; nothing was delivered.
            Undecodable: its body does not fit the code; nothing was delivered.
            ActivationTimeout: the watchdog ended it.
        """
        command = None
        if entry.kind == "cancel":
            expecting.expect_unfinished(self, entry)
        elif entry.info == ALONE and expecting.given_up(self, entry):
            self._move(entry.at, entry.position + 1 + len(patches), patches, replaying)
            return
        else:
            command = expecting.expected(self, entry)
            value = expecting.decoded(self, entry, command, value, UNSET)
            del self.open[entry.seq]
            self._issued.pop(entry.seq, None)
        self._move(entry.at, entry.position + 1 + len(patches), patches, replaying)
        loop = self.loop
        outside = loop.enter()
        try:
            if command is None:
                self._cancel()
            elif entry.kind == "timer":
                loop.ready.append(command.future)
            elif entry.failed:
                command.future.set_exception(value)
            else:
                if entry.kind == "started":
                    self.open[entry.seq] = outcome_command(command, value)
                command.future.set_result(value)
            loop.run()
        finally:
            loop.leave(outside)
        if self.outcome is not None:
            self._settle_end()

    @property
    def refusal(self) -> NondeterminismRefused | None:
        """The first I/O or nondeterministic call that the loop refused the code, whatever became of the error."""
        return self.loop.refusal

    @property
    def broken(self) -> bool:
        """Return whether the code has failed after the loop refused it something: it is to be mended, whatever it raised."""
        return isinstance(self.outcome, Failed) and self.loop.refusal is not None

    def take_issued(self) -> list[Command]:
        """Return the commands asked for since the last call and still awaited, in order."""
        issued = list(self._issued.values())
        self._issued.clear()
        return issued

    def take_withdrawn(self) -> list[Command]:
        """Return the commands that were taken before and that nobody awaits any more, in order."""
        withdrawn, self._withdrawn = self._withdrawn, []
        return withdrawn

    def take_patches(self) -> list[tuple[str, bool]]:
        """Return what `patched` answered for the first time, to be recorded right behind the entry delivered last."""
        return self._patches.take()

    def take_notes(self) -> list[object]:
        """Return what was noted since the last call, to be released when its transition commits."""
        notes, self._notes = self._notes, []
        return notes

    def awaiting(self) -> list[str]:
        """Return in words what each unfinished task awaits."""
        return awaiting(self.loop.tasks, self._bridges.frames())

    def give_up(self, failure: bytes) -> None:
        """End a cancelled generation that takes too long: its code goes no further. *failure*: encoded, before the App's codec."""
        self.outcome = Cancelled(failure)
        self.loop.refusing = self.loop.halted = True
        self._settle_end()

    def interrupt(self) -> None:
        """End the activation under way even if the code swallows the watchdog's throw. From the watchdog's thread."""
        self.loop.stop_now()

    def rest(self) -> None:
        """Take as little memory as can be until the next entry."""
        self.loop.rest()

    def close(self) -> None:
        """Drop the instance: its code is ended, does nothing durable and makes no noise. Never raises; again does nothing."""
        if self.loop.dead:
            return
        self.loop.dead = True
        self._wind_down()
        self.loop.instance, self.unsent = None, _nothing_known  # the cycles
        self._main = b""
        for kept in (self.open, self._issued, self._withdrawn, self._notes):
            kept.clear()

    # ---- for authoring: called by code that runs inside ------------------------------------------

    def step(self, spec: StepSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """Return a call of a step, asked for when first awaited."""
        return StepAwaited(self, spec, args, kwargs)

    def wait(self, call: WaitCall) -> Coroutine[Any, Any, expecting.Arrival]:
        """Return a wait for an event, asked for when first awaited."""
        return WaitAwaited(self, call)

    def operation(self, spec: OperationSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """Return a call of an operation, recorded as an intent when first awaited."""
        return OperationAwaited(self, spec, args, kwargs)

    def child(self, call: ChildCall) -> Coroutine[Any, Any, Any]:
        """Return a child's outcome, which is asked for when first awaited."""
        return ChildAwaited(self, call)

    def start_child(self, call: ChildCall) -> Coroutine[Any, Any, str]:
        """Return the start of a child, asked for when first awaited: its outcome is the child's run ID, once it is stored."""
        return ChildStarted(self, call)

    def cancel_child(self, seq: int, reason: str) -> Coroutine[Any, Any, None]:
        """Return a request to cancel the child that command *seq* started, made when first awaited."""
        return CancelAwaited(self, CancelChild(seq, reason))

    def child_id(self, seq: int) -> str:
        """Return the run ID of the child that command *seq* starts, where the code chose none."""
        return child_id(self.info.id, self.seeds.newest, seq)

    def patched(self, name: str) -> bool:
        """Return whether code guarded by *name* runs, the same answer for the whole generation."""
        known = self._patches.known(name)
        if known is not None:
            return known
        answer = not self._replaying and self.loop.live and not self.loop.refusing
        if answer:
            self.position += 1
        return self._patches.answer(name, answer)

    def gives_up(self, seq: int) -> bool:
        """Return whether operation *seq* lets go of a caller that is cancelled: nothing of it was sent, or it is declared so.

        That nothing was sent is the worker's to know, so the answer is recorded as an answer of `patched` is.
        """
        command = self.open.get(seq)
        if not self.loop.live or self.loop.refusing or command is None or cast("OperationCall", command.detail).spec.on_cancel == "abandon":
            return True
        name = f"{WITHDRAWN}{seq}"
        if self._patches.known(name):
            return True
        if self._replaying or not (seq in self._issued or self.unsent(seq)):
            return False
        self.position += 1
        return self._patches.answer(name, True)

    def set_attributes(self, values: dict[str, str | int | bool]) -> None:
        """Set attributes of the run, as part of the next transition."""
        self.attributes.update(values)
        self.attributes_changed = True

    def note(self, record: object) -> None:
        """Keep *record* until its transition commits; a replay and a dropped instance keep nothing."""
        if not self._replaying and not self.loop.dead:
            self._notes.append(record)

    def rng(self) -> Random:
        """Return the run's generator of random numbers."""
        return self._draws.rng()

    def uuid4(self) -> UUID:
        """Return the run's next UUID."""
        return self._draws.uuid4()

    def continue_as_new(self, workflow: str, version: str, arguments: bytes) -> NoReturn:
        """End this generation and begin the next with these encoded arguments."""
        raise ContinueAsNew(Continued(workflow, version, arguments))

    def in_bridge(self) -> bool:
        """Return whether the caller is sync workflow code."""
        return self._bridges.inside()

    def blocking(self, awaitable: Awaitable[Any]) -> Any:
        """Return the outcome of *awaitable*, from sync workflow code.

        Raises:
            WrongColour: the caller is not sync workflow code.
        """
        if not self._bridges.inside():
            raise WrongColour("this call suspends a def workflow and was made elsewhere: in async code, await it")
        return self._bridges.suspend(awaitable)

    # ---- for calls and timers ----------------------------------------------------------------------

    def outcome_of(self, make: Callable[[Instance], Command]) -> Generator[Any, Any, Any]:
        """Ask for the command that *make* makes, await its outcome, withdraw it if the caller is cancelled."""
        loop = self.loop
        if not loop.live or loop.refusing:
            yield from _refused(loop)
        command = make(self)
        self.open[command.seq] = self._issued[command.seq] = command
        awaited: Generator[Any, Any, Any] = command.future
        try:
            outcome = yield from awaited
        except BaseException:
            if loop.live:
                self._withdraw(command.seq)
            raise
        return outcome

    def new_future(self) -> asyncio.Future[Any]:
        """Return a future that no user sees."""
        return asyncio.Future(loop=self.loop)

    def issue_timer(self, timer: Timer, due: int) -> None:
        """Make *timer* a command, due at *due* (store µs)."""
        command = made(self, Kind.TIMER, "", b"%d" % due, TimerCall(due), timer)
        timer.seq = command.seq
        self.open[command.seq] = self._issued[command.seq] = command

    def withdraw_timer(self, seq: int) -> None:
        """Note that nobody waits for timer *seq* any more."""
        if self.loop.live:
            self._withdraw(seq)

    # ---- inside ------------------------------------------------------------------------------------

    def _move(self, now: int, position: int, patches: Sequence[str], replaying: bool) -> None:
        self.now = self.loop.now = now
        self.position = position
        self._replaying = replaying
        if patches:
            self._patches.recorded(patches)
        if self._reseeded:
            self._reseed(self.seeds.in_force(position))

    def _reseed(self, seed: bytes) -> None:
        if seed != self.seed:
            self.seed = seed
            self._draws.reseed(seed)

    async def _code(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the workflow and fix the outcome in the moment it ends: commands are refused from here on."""
        try:
            if self.spec.is_async:
                value = await self.spec.fn(*args, **kwargs)
            else:
                value = await self._bridges.drive(self.spec.fn, args, kwargs)
            outcome: Outcome = Returned(self.spec.value.dump(value)[0])
        except BaseException as error:
            if isinstance(error, ActivationTimeout):
                self.loop.stop_now()
            if self.loop.refusing or self.loop.stopped or isinstance(error, (Dropped, KeyboardInterrupt)):
                raise
            outcome = outcome_of(error, cancelled=self._cancelled)
        self.outcome = outcome
        self.loop.refusing = self.loop.halted = True

    def _cancel(self) -> None:
        self._cancelled = True
        if isinstance(self._main, asyncio.Task):
            self._main.cancel()

    def _withdraw(self, seq: int) -> None:
        command = self.open.pop(seq, None)
        if command is not None and self._issued.pop(seq, None) is None:
            self._withdrawn.append(command)

    def _settle_end(self) -> None:
        """Once the code has ended: cancel the tasks it left, and withdraw what they and it left open."""
        if self.outcome is not None:
            for failure in unretrieved(self.loop):
                self.note(failure)
            self._wind_down()
            for seq in list(self.open):
                self._withdraw(seq)

    def _wind_down(self) -> None:
        wind_down(self.loop)
        self._bridges.abandon()


def _nothing_known(seq: int) -> bool:
    return False


def current() -> Instance | None:
    """Return the instance whose workflow code calls this, None elsewhere; raise in a finaliser, which may be a run's."""
    loop = _get_running_loop()
    if type(loop) is WorkflowLoop:
        instance: Instance | None = loop.instance
        return instance
    refuse_finalisers()
    return None


def _refused(loop: WorkflowLoop) -> Generator[None, None, NoReturn]:
    """Refuse a command by raising; code that swallows even that, again and again, is suspended for good."""
    if not loop.live or loop.may_raise():
        raise Finalised
    while True:
        yield
