"""Values that other systems lose or change: made by a step, seen live, seen again by a replay in another process."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel

import romulus
from romulus import Retry
from tests.processes.effects import note

T = TypeVar("T")


class Box:
    class Colour(enum.Enum):
        RED = "red"


class Pair(BaseModel, Generic[T]):
    left: T
    right: list[T]


@dataclass
class Parcel:
    weight: int
    label: str = field(init=False, default="")


class Opaque:
    """No annotation of pydantic's takes it."""


def parcel() -> Parcel:
    made = Parcel(3)
    made.label = "glass"
    return made


MAKERS: dict[str, Callable[[], Any]] = {}


def maker(fn: Callable[[], Any]) -> Any:
    """Make a step of a function without arguments, with the annotation it has."""
    MAKERS[fn.__name__] = fn
    return romulus.step(fn)


@maker
async def decimal() -> Decimal:
    return Decimal("1.10")


@maker
async def zoned() -> datetime:
    return datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)


@maker
async def raw() -> bytes:
    return b"\x00\xff"


@maker
async def pair() -> tuple[int, str]:
    return (1, "a")


@maker
async def several() -> set[str]:
    return {"a", "b", "c", "d"}


@maker
async def counted() -> defaultdict[str, list[int]]:
    return defaultdict(list, {"a": [1]})


@maker
async def big() -> int:
    return 2**63 + 1


@maker
async def generic() -> Pair[Decimal]:
    return Pair[Decimal](left=Decimal("1.10"), right=[Decimal("2.0")])


@maker
async def colour() -> Box.Colour:
    return Box.Colour.RED


@maker
async def labelled() -> Parcel:
    return parcel()


@maker
async def precise() -> float:
    return 0.1 + 0.2


KINDS = list(MAKERS)
STEPS = {"decimal": decimal, "zoned": zoned, "raw": raw, "pair": pair, "several": several, "counted": counted, "big": big,
         "generic": generic, "colour": colour, "labelled": labelled, "precise": precise}  # fmt: skip


def described(value: Any) -> str:
    """Return a value with its type, alike under any hash seed."""
    shown = sorted(value) if isinstance(value, set) else value
    return f"{type(value).__module__}.{type(value).__qualname__} {shown!r}"


@romulus.step
async def seen(description: str) -> None:
    note("seen", value=description)


@romulus.workflow
async def keeps(kind: str) -> str:
    """Show a value live; after the event, that is after a replay, return what it looks like then."""
    value = await STEPS[kind]()
    await seen(described(value))
    await romulus.wait_for_event("go", correlation_id="all", type=bool, shared=True)
    return described(value)


@romulus.step
async def opaque() -> object:
    note("begin")
    return Opaque()


@romulus.step
async def listed() -> list[tuple[int, ...]]:
    note("begin")
    return [[1, 2]]  # type: ignore[list-item]


@romulus.workflow
async def refused(kind: str) -> str:
    """Await a value that would come back as something else."""
    try:
        await (opaque() if kind == "opaque" else listed())
    except romulus.SerializationError as error:
        return str(error)
    return "kept"


@romulus.step
async def nul_text() -> str:
    note("begin")
    return "a\x00b"


@romulus.step
async def nul_key() -> dict[str, int]:
    note("begin")
    return {"k\x00": 1}


@romulus.step
async def six_characters() -> str:
    note("begin")
    return r"\u0000"


@romulus.step(retry=Retry(max_attempts=1))
async def nul_error() -> None:
    note("begin")
    raise LookupError("no\x00thing")


@romulus.workflow
async def nul(caught: bool) -> tuple[str, dict[str, int], str, str, str]:
    """Carry U+0000 through a result, a key, an error and an event."""
    text, keyed, six = await nul_text(), await nul_key(), await six_characters()
    try:
        await nul_error()
    except LookupError as error:
        if not caught:
            raise
        message = str(error)
    event = await romulus.wait_for_event("nul", type=str)
    return text, keyed, six, message, event.payload


app = romulus.App(workflows=[keeps, refused, nul], steps=list(STEPS.values()))
