"""Drives one instance as a worker would, without a store: outcomes become entries, entries make the trace."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from romulus.core.commands import Command, StepCall, StepSpec, TimerCall, WaitCall, WorkflowSpec
from romulus.core.failures import dump_failure
from romulus.core.instance import Instance, RunInfo, current
from romulus.core.record import Entry, Kind
from romulus.core.retry import Retry
from romulus.core.seeds import Seeds
from romulus.core.values import ArgumentsCodec, ValueCodec, Vault

START = 1_700_000_000_000_000  # µs
VAULT = Vault(None, 1 << 20)
SEEDS = Seeds.first("00112233445566778899aabbccddeeff")
Choice = Callable[[Sequence[Command]], Command]


def step_spec(fn: Callable[..., Any]) -> StepSpec:
    name = fn.__name__
    value = ValueCodec(fn.__annotations__.get("return", Any), name)
    return StepSpec(name, fn, False, False, Retry(), None, None, None, False, ArgumentsCodec(fn, name), value)


def step(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose body is plain: called inside an instance it is a command (blocking in sync code)."""
    spec = step_spec(fn)

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        instance = current()
        if instance is None:
            return fn(*args, **kwargs)
        made = instance.step(spec, args, kwargs)
        return instance.blocking(made) if instance.in_bridge() else made

    return call


def wait(name: str, type: Any = Any, timeout: float | None = None) -> Any:  # noqa: A002
    instance = current()
    assert instance is not None
    deadline = None if timeout is None else instance.now + round(timeout * 1e6)
    return instance.wait(WaitCall(name, instance.info.id, deadline, ValueCodec(type, name)))


def make(fn: Callable[..., Any], *args: Any, seeds: Seeds = SEEDS, vault: Vault = VAULT) -> Instance:
    codec = ArgumentsCodec(fn, fn.__name__)
    value = ValueCodec(fn.__annotations__.get("return", Any), fn.__name__)
    spec = WorkflowSpec(fn.__name__, "1", fn, inspect.iscoroutinefunction(fn), None, codec, value)
    info = RunInfo("run-1", fn.__name__, "1", datetime.fromtimestamp(START / 1e6, UTC), "default", 1)
    return Instance(spec, info, codec.dump(args, {}), seeds, START, vault)


def oldest(commands: Sequence[Command]) -> Command:
    return commands[0]


class Rig:
    """A worker in miniature: `trace` has every command, withdrawal and outcome in order."""

    def __init__(self, fn: Callable[..., Any], *args: Any, choose: Choice = oldest, **more: Any) -> None:
        self.instance = make(fn, *args, **more)
        self.choose = choose
        self.journal: list[Entry] = []
        self.trace: list[str] = []
        self.events: dict[str, Any] = {}

    def start(self) -> Rig:
        self.instance.start(replaying=False)
        self._after()
        return self

    def run(self, entries_max: int = 100_000) -> Rig:
        self.start()
        while self.instance.outcome is None and self.instance.open and len(self.journal) < entries_max:
            self.settle(self.choose(self.ready()))
        self.trace.append(f"end {self.instance.outcome}")
        return self

    def ready(self) -> list[Command]:
        """What can be settled now: steps and waits, else the timer due first."""
        commands = list(self.instance.open.values())
        other = [c for c in commands if not isinstance(c.detail, TimerCall)]
        due = sorted((c for c in commands if isinstance(c.detail, TimerCall)), key=lambda c: (c.detail.due, c.seq))  # type: ignore[union-attr]
        return other + due[:1]

    def settle(self, command: Command, *, replaying: bool = False) -> None:
        self.deliver(self.entry(command), replaying=replaying)

    def seq(self, seq: int) -> Command:
        return self.instance.open[seq]

    def entry(self, command: Command) -> Entry:
        failed, body, info, at = False, b"", "", self.instance.now + 1000
        detail: Any = command.detail
        if isinstance(detail, StepCall):
            failed, body = self._work(detail)
        elif isinstance(detail, TimerCall):
            at = max(at, detail.due)
        elif command.name in self.events:
            body = detail.value.dump(self.events[command.name])[0]
            info = json.dumps(["evt-1", at, detail.correlation_id, detail.name])
        else:
            failed, at = True, max(at, detail.deadline or 0)
        return Entry(self.instance.position, command.kind, command.seq, command.name, 1, at, failed, body, command.digest, info)

    def deliver(self, entry: Entry, *, replaying: bool = False, patches: Sequence[str] = ()) -> None:
        self.trace.append(f"deliver {entry.kind} {entry.seq} {entry.name} {'failed' if entry.failed else ''}")
        self.journal.append(entry)
        self.instance.deliver(entry, replaying=replaying, patches=patches)
        self._after()

    def cancel(self) -> None:
        at = self.instance.now + 1000
        self.deliver(Entry(self.instance.position, Kind.CANCEL, 1, "", 0, at, False, b'""', b""))

    def names(self) -> list[str]:
        """The open commands, by name."""
        return [command.name or "timer" for command in self.instance.open.values()]

    def _work(self, detail: StepCall) -> tuple[bool, bytes]:
        args, kwargs = detail.spec.arguments.load(detail.arguments)
        try:
            return False, detail.spec.value.dump(detail.spec.fn(*args, **kwargs))[0]
        except Exception as error:
            return True, dump_failure(error)

    def _after(self) -> None:
        for command in self.instance.take_issued():
            self.trace.append(f"issue {command.seq} {command.kind} {command.name} {command.digest.hex()}")
        for command in self.instance.take_withdrawn():
            self.trace.append(f"withdraw {command.seq}")
        self.trace.extend(f"note {note}" for note in self.instance.take_notes())
        for name, answer in self.instance.take_patches():
            self.trace.append(f"patch {name} {answer}")
            self.journal.append(Entry(len(self.journal), Kind.PATCH, 0, name, 0, self.instance.now, False, b"1", b""))


def replay(rig: Rig, fn: Callable[..., Any], *args: Any, **more: Any) -> Rig:
    """Return a rig that was fed the journal of *rig*: its trace must be the same."""
    again = Rig(fn, *args, **more)
    groups: list[tuple[Entry | None, list[str]]] = [(None, [])]
    for entry in rig.journal:
        if entry.kind == Kind.PATCH:
            groups[-1][1].append(entry.name)
        else:
            groups.append((entry, []))
    again.instance.start(replaying=True, patches=groups[0][1])
    again._after()
    for told, patches in groups[1:]:
        assert told is not None
        again.deliver(told, replaying=True, patches=patches)
    again.trace.append(f"end {again.instance.outcome}")
    return again
