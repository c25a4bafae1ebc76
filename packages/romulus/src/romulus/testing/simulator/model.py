"""The plain model: what a program must come to, whatever crashes on the way, where its own races leave a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from romulus.core.children import DEPTH_MAX

from .programs import Node
from .steps import ATTEMPTS, LIMITED, ONCE


@dataclass(frozen=True, slots=True)
class Is:
    """Exactly this value."""

    value: Any


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of these."""

    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose items fit these, in order."""

    patterns: tuple[Pattern, ...]


Pattern = Is | OneOf | Each


def fits(pattern: Pattern, value: Any) -> bool:
    """Return whether *value* is what *pattern* allows."""
    match pattern:
        case Is(expected):
            return bool(value == expected)
        case OneOf(patterns):
            return any(fits(each, value) for each in patterns)
        case Each(patterns):
            return _fit_each(patterns, value)


def _fit_each(patterns: tuple[Pattern, ...], values: Any) -> bool:
    match values:
        case [*items] if len(items) == len(patterns):
            return all(map(fits, patterns, items))
        case _:
            return False


class Model:
    """Expects results.

    *lossy*: attempts were lost that count against a step's limit, so a step that fails at times may have failed for good.
    *stalled*: processes stood still, so an attempt with a time limit may have run past it.
    """

    def __init__(self, *, lossy: bool = False, stalled: bool = False) -> None:
        self._lossy, self._stalled = lossy, stalled

    def fails(self, node: Node) -> bool:
        """Return whether the program ends by raising, wherever it ends."""
        match node:
            case ["seq", nodes]:
                return bool(nodes) and self.fails(nodes[-1])
            case ["again", rest]:
                return self.fails(rest)
            case _:
                return bool(node[0] == "raise")

    def expect(self, node: Node) -> Pattern:
        """Return what a node's result must fit."""
        match node:
            case ["step", kind, label, fails, _]:
                return self._step(kind, label, fails)
            case ["write", _, label, ways, *_]:
                return _write(label, ways)
            case ["sleep", _]:
                return Is("slept")
            case ["wait", name, 0]:
                return Is(payload(name))
            case ["wait", name, _]:
                return OneOf((Is(payload(name)), Is("no event")))
            case ["common"]:
                return Is("taken")
            case ["draw", _]:
                return Is("drawn")
            case ["patched", _]:
                return OneOf((Is(True), Is(False)))
            case ["variant", _]:
                return Is("fits")
            case ["hang", _]:
                return Is("went on")
            case ["child", "left" | "dropped" | "kept" as how, _]:
                return Is(how)
            case ["endless", _]:
                return Is(DEPTH_MAX)
            case ["role", _, each]:
                return self.expect(each)
            case ["child", _, each]:
                outcome = Model(lossy=True, stalled=True).expect(each)  # what it went through is its own
                return OneOf((outcome, Is("child cancelled"), Is("child terminated")))
            case _:
                return self._composed(node)

    def _composed(self, node: Node) -> Pattern:
        match node:
            case ["seq", [*_, ["again", rest]]]:
                return self.expect(rest)
            case ["seq" | "gather" | "group", nodes] | ["limited", _, nodes]:
                return Each(tuple(map(self.expect, nodes)))
            case ["burst", _, _]:
                return Is("burst")
            case ["within", _, each]:
                return OneOf((self.expect(each), Is("out of time")))
            case ["cancel", _, each]:
                return OneOf((self.expect(each), Is("cancelled")))
            case ["first", nodes]:
                return OneOf(tuple(Each((Is(number), self.expect(each))) for number, each in enumerate(nodes)))
            case ["finally", each, cleanup]:
                return Each((self.expect(each), self.expect(cleanup)))
            case _:
                raise ValueError(f"no such node: {node!r}")

    def _step(self, kind: str, label: str, fails: int) -> Pattern:
        attempts = 1 if kind in ONCE else ATTEMPTS
        limited = kind in LIMITED
        failed = Is("failed StepTimeout" if limited else "failed Boom")
        if kind == "stubborn" or fails < attempts:
            unsure = (self._lossy and fails) or (self._stalled and limited)
            return OneOf((Is(label), failed)) if unsure else Is(label)
        return failed


def _write(label: str, ways: list[str]) -> Pattern:
    """Return what an operation may come to: a person may always give up one whose answer was lost."""
    refused = [Is("failed OperationRejected")] if "refuse" in ways else []
    unsent = [Is("failed NotSent")] if ways.count("unreachable") > 2 else []
    return OneOf((Is(label), Is("failed OperationAbandoned"), *refused, *unsent))


def payload(name: str) -> str:
    """Return the payload that the scenario sends with the event of this name."""
    return f"payload of {name}"
