"""What the worker and the second interpreter tell each other: pickled values behind a length, over two pipes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from romulus.core.commands import Command
from romulus.core.instance import Instance, RunInfo
from romulus.core.record import Entry

LENGTH_BYTES = 4


class Target(NamedTuple):
    """Where the second interpreter finds the App."""

    module: str
    attribute: str
    main: dict[str, Any] | None = None  # for `multiprocessing.spawn.prepare`, where the module is the program itself


class Asked(NamedTuple):
    """A command as it is compared."""

    seq: int
    kind: str
    name: str
    digest: bytes

    @classmethod
    def of(cls, command: Command) -> Asked:
        """Return what is compared of *command*."""
        return cls(command.seq, str(command.kind), command.name, command.digest)


class Turn(NamedTuple):
    """One activation: its entry (None: the start) and the names of the PATCH entries right behind it."""

    entry: Entry | None
    patches: tuple[str, ...] = ()


# ---- to the second interpreter ---------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """A generation is in the worker's memory; nothing of it has been told yet."""

    key: int  # names it between the two, never used again
    info: RunInfo
    arguments: bytes  # plaintext
    seeds: str
    started_at: int  # store µs


@dataclass(slots=True)
class Past:
    """What was recorded before the worker had the run: replayed without a look at what the code asks for meanwhile."""

    key: int
    turns: list[Turn]


@dataclass(slots=True)
class Committed:
    """One transition is durable."""

    key: int
    turns: list[Turn]
    asked: list[Asked]  # in the worker, since the last one
    outcome: str  # class of the instance's outcome, "" while there is none
    parked: bool = False


@dataclass(slots=True)
class Forget:
    """The worker has dropped the run."""

    key: int


Told = Watch | Past | Committed | Forget

# ---- from the second interpreter ---------------------------------------------------------------------


@dataclass(slots=True)
class Ready:
    """The App is imported; this is the digest of each workflow's code there."""

    digests: dict[tuple[str, str], str]


@dataclass(slots=True)
class Broken:
    """The App cannot be imported: there will be no shadow."""

    reason: str


@dataclass(slots=True)
class Differs:
    """The code asked for something else here."""

    key: int
    run_id: str
    reason: str


@dataclass(slots=True)
class Lost:
    """A run cannot be followed any more, for a reason that is not its own."""

    key: int
    run_id: str
    reason: str


@dataclass(slots=True)
class Done:
    """A message has been worked through."""

    size: int  # its frame's bytes
    replayed: int  # entries delivered in all, by every pass over every run


Answer = Ready | Broken | Differs | Lost | Done


def packed(message: Any) -> bytes:
    """Return *message* as a frame."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def unpacked(body: bytes) -> Any:
    """Return what a frame holds; both ends are this program, started by the same user."""
    return pickle.loads(body)  # noqa: S301


def read_frame(read: Callable[[int], bytes]) -> bytes | None:
    """Return a frame's body from a blocking *read*, None at the end of the pipe."""
    head = read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "big")
    body = read(size)
    return body if len(body) == size else None


def outcome_word(instance: Instance) -> str:
    """Return what is compared of the instance's outcome: how the code ended, not with what."""
    return "" if instance.outcome is None else type(instance.outcome).__name__
