"""A `def` workflow over the same leaves: what runs through the bridge."""

from __future__ import annotations

import json
from typing import Any

from romulus.authoring import blocking
from romulus.authoring.workflow import workflow
from romulus.core.errors import WaitTimeout

from .steps import STEPS, threaded


@workflow
def plain(text: str) -> str:
    """Carry out the leaves in *text*, one after the other, and return their results as JSON."""
    _, nodes = json.loads(text)
    return json.dumps([leaf(node) for node in nodes])


def leaf(node: list[Any]) -> str:
    """Carry out one leaf."""
    match node:
        case ["step", kind, label, fails, millis]:
            return attempt(kind, label, fails, millis)
        case ["sleep", millis]:
            blocking.sleep(millis / 1000)
            return "slept"
        case ["wait", name, millis]:
            return event(name, millis)
        case _:
            raise ValueError(f"no leaf: {node!r}")


def attempt(kind: str, label: str, fails: int, millis: int) -> str:
    """Call a step and say what came of it."""
    try:
        if kind == "threaded":
            return threaded(label, fails, millis)
        return STEPS[kind].blocking(label, fails, millis)
    except Exception as error:  # noqa: BLE001 - whatever a step raises is a result here
        return f"failed {type(error).__name__}"


def event(name: str, millis: int) -> str:
    """Wait for an event."""
    try:
        return blocking.wait_for_event(name, type=str, timeout=millis / 1000 if millis else None).payload
    except WaitTimeout:
        return "no event"
