"""A run in memory without a worker: real instances, real codecs, outcomes handed in by the test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from romulus.authoring.workflow import AnyWorkflow
from romulus.core.commands import Command, Failed, Returned, StepCall
from romulus.core.failures import load_failure
from romulus.core.instance import Instance, RunInfo
from romulus.core.record import Entry
from romulus.core.seeds import Seeds
from romulus.core.values import Vault

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
VAULT = Vault(None, 1_000_000)


def begin(workflow: AnyWorkflow[..., Any], *args: Any, seed: str = "5" * 32) -> Instance:
    """Start a run of *workflow* at noon and take it to quiescence."""
    info = RunInfo("run-1", workflow.name, workflow.version, datetime(2026, 1, 1, 12, tzinfo=UTC), "default", 1)
    instance = Instance(workflow.spec, info, workflow.spec.arguments.dump(args, {}), Seeds.first(seed), NOON, VAULT)
    instance.start(replaying=False)
    return instance


def finish(instance: Instance, perform: Callable[[Command], bytes] | None = None) -> Any:
    """Answer every command until the run ends; return its value, or raise what it raised. Steps are run as plain functions."""
    while instance.outcome is None:
        command = min(instance.open.values(), key=lambda command: command.seq)
        deliver(instance, command, (perform or _plainly)(command))
    return ended(instance)


def ended(instance: Instance) -> Any:
    """Return the value of an ended run, or raise what it raised."""
    if isinstance(instance.outcome, Failed):
        raise load_failure(instance.outcome.body)
    assert isinstance(instance.outcome, Returned), instance.outcome
    return instance.spec.value.load(instance.outcome.body)


def deliver(instance: Instance, command: Command, body: bytes = b"", *, failed: bool = False, info: str = "", at: int = 0) -> None:
    """Deliver the outcome of *command*, *at* µs after noon."""
    entry = Entry(instance.position, command.kind, command.seq, command.name, 1, NOON + at, failed, body, command.digest, info=info)
    instance.deliver(entry, replaying=False)


def _plainly(command: Command) -> bytes:
    assert isinstance(command.detail, StepCall)
    args, kwargs = command.detail.spec.arguments.load(command.detail.arguments)
    value = command.detail.spec.fn(*args, **kwargs)
    if command.detail.spec.is_async:
        value = _to_the_end(value)
    return command.detail.spec.value.dump(value)[0]


def _to_the_end(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the step's body suspended")
