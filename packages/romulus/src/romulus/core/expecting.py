"""Checks a journal entry against what the code asked for, and decodes its body."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .commands import ChildCall, Command, OperationCall, StepCall, WaitCall
from .endings import came_from, raisable
from .errors import ChildFailed, Mismatch, OperationAbandoned, Undecodable, WaitTimeout
from .failures import describe_failure, load_failure
from .record import Entry, Kind, OpenWait, StartedChild

if TYPE_CHECKING:
    from .instance import Instance


BELOW = "below it, in "
_WORDS: dict[str, str] = {
    Kind.WAIT: "a wait for event",
    Kind.CHILD: "a child of workflow",
    Kind.STARTED: "the start of a child of workflow",
    Kind.CANCEL_CHILD: "the cancel of a child",
}


class Arrival(NamedTuple):
    """An event that a wait has consumed."""

    payload: Any
    id: str
    name: str
    correlation_id: str
    received_at: int  # store µs


def expected(instance: Instance, entry: Entry) -> Command:
    """Return the open command that *entry* settles.

    Raises:
        Mismatch: the code did not ask for it, or for something else.
    """
    _check_follows(instance, entry)
    command = instance.open.get(entry.seq)
    if command is None:
        raise Mismatch(entry.position, recorded_as(entry), _asked_instead(instance, entry.seq))
    if (entry.digest != command.digest and not _is_copied(entry, command)) or entry.name != command.name or entry.kind != command.kind:
        raise Mismatch(entry.position, recorded_as(entry), _difference(entry, command))
    return command


def _is_copied(entry: Entry, command: Command) -> bool:
    """Return whether a fork's journal has this child under an ID that was made of the ID of the run it was forked from."""
    return isinstance(command.detail, ChildCall) and entry.digest in command.detail.copied


def given_up(instance: Instance, entry: Entry) -> bool:
    """Return whether the code no longer asks for *entry*, which was recorded alone: an outcome before it made the code give it up."""
    if entry.seq in instance.open or entry.seq > instance.seq:
        return False
    _check_follows(instance, entry)
    return True


def expect_unfinished(instance: Instance, entry: Entry) -> None:
    """Check that the code can still be cancelled.

    Raises:
        Mismatch: it has ended.
    """
    _check_follows(instance, entry)
    if instance.outcome is not None:
        raise Mismatch(entry.position, recorded_as(entry), _asked_instead(instance, 0))


def expected_wait(instance: Instance, wait: OpenWait) -> Command | None:
    """Return the command of a wait that the record holds open, None if the code has asked for it and given it up since.

    Raises:
        Mismatch: the code asked for something else there, or has not come so far and asks for nothing more.
    """
    command, recorded = instance.open.get(wait.seq), in_words(Kind.WAIT, wait.name, wait.seq)
    if command is None and wait.seq <= instance.seq:
        return None
    if command is None:
        raise Mismatch(instance.position, recorded, _asked_instead(instance, wait.seq))
    if not isinstance(command.detail, WaitCall) or command.detail.name != wait.name:
        raise Mismatch(instance.position, recorded, in_words(command.kind, command.name, command.seq))
    if (command.detail.correlation_id, command.detail.deadline, command.detail.shared, command.detail.include_late) != (
        wait.correlation_id, wait.deadline, wait.shared, wait.include_late,
    ):  # fmt: skip
        raise Mismatch(instance.position, recorded, f"{recorded} with other arguments")
    return command


def expected_child(instance: Instance, child: StartedChild) -> Command | None:
    """Return the command of a child that the record has as started, None if the code has its outcome or has given it up.

    Raises:
        Mismatch: the code asked for something else there, or has not come so far and asks for nothing more.
    """
    command = instance.open.get(child.seq)
    if command is None and child.seq <= instance.seq:
        return None
    if command is None or not isinstance(command.detail, ChildCall):
        asked = _asked_instead(instance, child.seq) if command is None else in_words(command.kind, command.name, command.seq)
        raise Mismatch(instance.position, f"the start of child {child.run_id!r} (command {child.seq})", asked)
    return command


def decoded(instance: Instance, entry: Entry, command: Command, value: Any, unset: object) -> Any:
    """Return what *entry* gives the code.

    Raises:
        Undecodable: the body does not fit the code that is here; nothing has changed.
    """
    detail = command.detail
    if entry.failed:
        value = _failure(instance, entry, value)
    elif isinstance(detail, StepCall):
        if value is unset:
            value = detail.spec.value.load(instance.vault.open(entry.body, f"outcome of step {entry.name!r}"))
    elif isinstance(detail, OperationCall):
        if value is unset:
            value = detail.spec.value.load(instance.vault.open(entry.body, f"outcome of operation {entry.name!r}"))
    elif isinstance(detail, WaitCall):
        if value is unset:
            value = detail.value.load(instance.vault.open(entry.body, f"event {entry.name!r}"))
        value = _arrival(entry, value)
    elif isinstance(detail, ChildCall) and value is unset:
        body = instance.vault.open(entry.body, f"outcome of child {entry.name!r}")
        value = json.loads(body) if entry.kind == Kind.STARTED else detail.value.load(body)
    return value


def recorded_as(entry: Entry) -> str:
    """Return an entry in words."""
    return "a cancel" if entry.kind == Kind.CANCEL else in_words(entry.kind, entry.name, entry.seq)


def _check_follows(instance: Instance, entry: Entry) -> None:
    if entry.position != instance.position or entry.at < instance.now:
        raise ValueError(f"entry {entry.position} at {entry.at} does not follow position {instance.position} at {instance.now}")


def in_words(kind: str, name: str, seq: int) -> str:
    """Return a command as people read it in the reason of a hold."""
    if kind == Kind.TIMER:
        return f"a timer (command {seq})"
    what = _WORDS.get(kind, str(kind))
    return f"{what} {name!r} (command {seq})" if name else f"{what} (command {seq})"


def _difference(entry: Entry, command: Command) -> str:
    asked = in_words(command.kind, command.name, command.seq)
    if entry.kind != command.kind or entry.name != command.name:
        return asked
    return f"a timer for another time (command {command.seq})" if command.kind == Kind.TIMER else f"{asked} with other arguments"


def _asked_instead(instance: Instance, seq: int) -> str:
    if instance.outcome is not None:
        return "nothing: it has ended"
    if seq <= instance.seq:
        return f"nothing: command {seq} has its outcome already or is no longer awaited"
    awaited = ", ".join(in_words(each.kind, each.name, each.seq) for each in list(instance.open.values())[:3])
    return f"nothing of that number: it has asked for {instance.seq} commands and awaits {awaited or 'none of them'}"


def _failure(instance: Instance, entry: Entry, value: Any) -> Exception:
    if isinstance(value, BaseException):
        error = raisable(value)
    elif entry.kind == Kind.WAIT and not entry.body:
        error = WaitTimeout(f"no event {entry.name!r} came in time")
    elif entry.kind == Kind.OPERATION and not entry.body:
        operation_id, *_, reason = json.loads(entry.info)
        error = OperationAbandoned(f"operation {entry.name!r} (ID {operation_id}) was given up, it may have been applied: {reason}")
    elif entry.kind == Kind.CHILD and entry.info:
        error = _child_failed(instance, entry)
    else:
        error = raisable(load_failure(instance.vault.open(entry.body, f"failure of {entry.kind} {entry.name!r}")))
    came_from(error, entry.position)
    return error


def _child_failed(instance: Instance, entry: Entry) -> ChildFailed:
    run_id, status = json.loads(entry.info)
    if not entry.body:
        return ChildFailed(run_id, status)
    plain = instance.vault.open(entry.body, f"failure of child {run_id!r}")
    cause = load_failure(plain)
    error = ChildFailed(run_id, status, _first_cause(cause) or describe_failure(plain))
    error.__cause__ = cause
    return error


def _first_cause(cause: BaseException) -> str:
    """Return where below the child it began, and how: of a long chain of children the line of a listing shows only the beginning."""
    if not isinstance(cause, ChildFailed) or not cause.error:
        return ""
    return cause.error if cause.error.startswith(BELOW) else f"{BELOW}{cause.run_id!r}: {cause.error}"


def _arrival(entry: Entry, payload: Any) -> Arrival:
    try:
        event_id, received_at, correlation_id, name = json.loads(entry.info)
    except ValueError as error:
        raise Undecodable(f"entry {entry.position} does not say which event it consumed: {entry.info!r}") from error
    return Arrival(payload, event_id, name, correlation_id, received_at)
