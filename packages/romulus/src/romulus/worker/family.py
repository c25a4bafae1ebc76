"""A run's children: started with its transitions, told of in its inbox, asked to end when nobody awaits them any more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from romulus.core.commands import CancelChild, ChildCall, Command
from romulus.core.digests import input_digest
from romulus.core.errors import RomulusError, RunConflict
from romulus.core.expecting import expected_child
from romulus.core.failures import dump_failure
from romulus.core.machine import TERMINAL, RunStatus
from romulus.core.record import About, Kind, Message, Record, Taken
from romulus.core.requests import RETRIED
from romulus.core.seeds import Seeds, derive
from romulus.core.transition import Attach, CloseChild, NewChild, NewRun

from .draft import Draft
from .engine import MessageIn
from .entries import entry_of, record

if TYPE_CHECKING:
    from .driver import RunDriver

REFUSED: Final = "refused"  # about a child that could not even be asked for; of this worker's own making, as is
ASKED: Final = "asked"  # about a request at a child that is stored
GIVEN_UP: Final = "its parent no longer awaits it"


def issued(driver: RunDriver, command: Command) -> None:
    """Make the child that the code asks for; one that cannot be made is the command's outcome."""
    call = cast("ChildCall", command.detail)
    try:
        driver.engine.registry.workflow(call.workflow, call.version)
        driver.unstarted[command.seq] = _new_child(driver, command, call)
    except RomulusError as error:
        refuse(driver, command, error)


def refuse(driver: RunDriver, command: Command, error: RomulusError) -> None:
    """Tell the code that what it asked for cannot even be stored."""
    driver.queue.append(MessageIn(Message(0, REFUSED, command.seq, True, dump_failure(error), "")))


def start(driver: RunDriver, draft: Draft) -> None:
    """Put children that wait to be started into the draft, as many as one transition may have."""
    room = driver.engine.settings.turn_children_max
    for seq in list(driver.unstarted)[:room]:
        child = draft.start(driver.unstarted.pop(seq))
        driver.children.add(seq)
        driver.parent = True
        if driver.instance.open[seq].kind == Kind.STARTED and not child.tell:
            draft.answers.append(Message(0, About.STARTED, seq, False, b"", child.run.id))


def withdrawn(driver: RunDriver, draft: Draft, command: Command) -> None:
    """Have a child closed that the code no longer awaits; when the run itself ends the store sees to its children."""
    call, seq = cast("ChildCall", command.detail), command.seq
    if driver.unstarted.pop(seq, None) is None and seq in driver.children:
        driver.children.discard(seq)
        if driver.instance.outcome is None and call.on_close != "abandon":
            draft.ask(CloseChild(seq, call.on_close, GIVEN_UP))


def cancel(draft: Draft, command: Command) -> None:
    """Ask for a child's cancel; the command's outcome is that the request is stored."""
    call = cast("CancelChild", command.detail)
    draft.ask(CloseChild(call.child, "cancel", call.reason))
    draft.answers.append(Message(0, ASKED, command.seq, False, b"", ""))


def take_up(driver: RunDriver, draft: Draft, record: Record) -> None:
    """Know again the children that the record has as started, so that they are not started twice; the code must still ask for them."""
    driver.parent = record.parent
    for child in record.children:
        command = expected_child(driver.instance, child)
        if command is not None:
            driver.children.add(child.seq)
            if command.kind == Kind.STARTED:
                driver.queue.append(MessageIn(Message(0, About.STARTED, child.seq, False, b"", child.run_id)))
        elif child.seq not in driver.told and RunStatus(child.status) not in TERMINAL and child.on_close in ("cancel", "terminate"):
            draft.ask(CloseChild(child.seq, child.on_close, GIVEN_UP))
    for command in list(driver.instance.open.values()):  # started by the generation whose journal this one began with
        if command.kind == Kind.CHILD and cast("ChildCall", command.detail).run_id and command.seq not in driver.children:
            issued(driver, command)


def deliver(driver: RunDriver, draft: Draft, message: Message) -> None:
    """Take a message: its entry is recorded and the code goes on with it, unless it has given the child up."""
    if message.key:
        draft.take(message.key)
    command = driver.instance.open.get(message.seq)
    match message.about:
        case About.STARTED if _is(command, Kind.STARTED):
            _started(driver, draft, command, message.info)
        case About.ENDED if command is not None:
            _ended(driver, draft, command, message)
        case About.CONFLICT:
            _conflict(driver, draft, command, message)
        case "refused" if command is not None:
            _failed(driver, draft, command, message.body)
        case "asked" if command is not None:
            record(driver, draft, entry_of(driver, draft, command, b""), None)
        case _:
            pass


def _is(command: Command | None, kind: Kind) -> TypeGuard[Command]:
    return command is not None and command.kind == kind


def _started(driver: RunDriver, draft: Draft, command: Command, run_id: str) -> None:
    body = driver.engine.registry.vault.seal(json.dumps(run_id).encode(), "the ID of a child")
    record(driver, draft, entry_of(driver, draft, command, body), run_id)


def _ended(driver: RunDriver, draft: Draft, command: Command, message: Message) -> None:
    """Record a child's outcome; that it was started comes first, should the answer to that still be under way."""
    if command.kind == Kind.STARTED:
        _started(driver, draft, command, json.loads(message.info)[0])
        command = driver.instance.open.get(message.seq, command)
    driver.children.discard(message.seq)
    if command.kind == Kind.CHILD and message.seq in driver.instance.open:
        record(driver, draft, entry_of(driver, draft, command, message.body, failed=message.failed, info=message.info))


def _conflict(driver: RunDriver, draft: Draft, command: Command | None, message: Message) -> None:
    """Take over a child that an earlier generation of this run started alike; any other run under that ID is a conflict."""
    driver.children.discard(message.seq)
    driver.unstarted.pop(message.seq, None)  # asked for under an earlier claim, and again when the run was taken up
    if command is None:
        return
    call, taken = cast("ChildCall", command.detail), Taken(*json.loads(message.info))
    difference = _difference(call, taken)
    if difference:
        _failed(driver, draft, command, dump_failure(RunConflict(taken.run_id, difference)))
        return
    again = _begins_again(driver, taken)
    draft.attach(Attach(message.seq, taken.key, call.on_close, again))
    if again:
        draft.ask(CloseChild(message.seq, "retry"))
    driver.children.add(message.seq)
    if command.kind == Kind.STARTED:
        draft.answers.append(Message(0, About.STARTED, message.seq, False, b"", taken.run_id))


def _begins_again(driver: RunDriver, taken: Taken) -> bool:
    """Return whether a child that is taken over is retried: told again how it had ended, a retried run would end the same way."""
    return driver.instance.seeds.replaced and taken.status in RETRIED


def _difference(call: ChildCall, taken: Taken) -> str:
    if taken.workflow != call.workflow:
        return f"as workflow {taken.workflow!r}"
    if input_digest(Seeds.parse(taken.seeds).in_force(0), call.arguments) != bytes.fromhex(taken.input_digest):
        return "with other arguments"
    return "" if taken.own else "and was not started by an earlier generation of this run"


def _failed(driver: RunDriver, draft: Draft, command: Command, failure: bytes) -> None:
    """Record that the child was not started."""
    body = driver.engine.registry.vault.seal_failure(failure, f"the failure of {command.kind} {command.name!r}")
    record(driver, draft, entry_of(driver, draft, command, body, failed=True))


def _new_child(driver: RunDriver, command: Command, call: ChildCall) -> NewChild:
    """Return the row to create, its draws and digests keyed by a seed of its own: the same whenever the parent comes to it again."""
    engine, run = driver.engine, driver.run
    seeds = Seeds.first(derive(driver.instance.seeds.newest, "child", command.seq).hex())
    later = call.delay is not None or call.start_at is not None
    chosen = call.run_id or call.id
    child = NewRun(
        run.namespace, chosen or driver.instance.child_id(command.seq), call.workflow, call.version,
        RunStatus.SCHEDULED if later else RunStatus.PENDING,
        engine.registry.vault.seal(call.arguments, f"arguments of workflow {call.workflow!r}"),
        input_digest(seeds.newest, call.arguments), seeds.dump(), wake_at=call.start_at or 0, delay=call.delay,
        priority=call.priority, timeout=call.timeout, attributes=call.attributes, depth=run.depth + 1, doubt=driver.unsure,
    )  # fmt: skip
    return NewChild(child, command.seq, call.on_close, tell=command.kind == Kind.STARTED and chosen is not None)
