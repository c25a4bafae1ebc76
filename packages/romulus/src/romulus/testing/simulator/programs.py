"""Programs as data: drawn from a seed, and the few tiny ones that are enumerated."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from .steps import ATTEMPTS, KINDS

Node = list[Any]
DEPTH_MAX = 3
NODES_MAX = 9  # leaves of one program, about
FAILS = {"stubborn": (0, 1, 2), "once": (0, 0, 99)}  # of which kind how many; a lost body may have failed unseen
OFTEN = ("work", "work", "quick", *KINDS)
COMPOSED = ("seq", "gather", "group", "burst", "limited", "within", "cancel", "first", "finally")


class Author:
    """Draws one program; every label and event name is used once."""

    def __init__(self, random: Random, prefix: str, *, variants: bool) -> None:
        self._random, self._prefix, self._variants = random, prefix, variants
        self._count = 0
        self.left = random.randrange(2, NODES_MAX)

    def program(self) -> Node:
        """Return a program, which now and then continues as a new one or fails."""
        nodes = [self.node(0) for _ in range(self._random.randrange(1, 4))]
        chance = self._random.random()
        if chance < 0.1:
            self.left = 3
            nodes.append(["again", ["seq", [self.node(1), self.leaf()]]])
        elif chance < 0.2:
            nodes.append(["raise", self._label()])
        elif chance < 0.25:
            nodes.append(self._hang())
        return ["seq", nodes]

    def leaves(self) -> Node:
        """Return a program that a `def` workflow can carry out."""
        kinds = {"step", "sleep", "wait"}
        return ["seq", [leaf for leaf in (self.leaf() for _ in range(6)) if leaf[0] in kinds] or [self._step()]]

    def node(self, depth: int) -> Node:
        """Return a node."""
        if depth >= DEPTH_MAX or self.left <= 0 or self._random.random() < 0.35:
            return self.leaf()
        return self._composed(depth + 1)

    def leaf(self) -> Node:
        """Return a node that is not made of others."""
        self.left -= 1
        if self._variants and self._random.random() < 0.3:
            return ["variant", self._label()]
        pick = self._random.randrange(20)
        if pick < 11:
            return self._step()
        if pick < 13:
            return ["sleep", self._random.randrange(0, 4000)]
        if pick < 16:
            return ["wait", self._label("event"), self._random.choice((0, 0, 500, 4000))]
        if pick < 17:
            return ["draw", self._label()]
        if pick < 18:
            return self._random.choice((["patched", self._label("patch")], ["common"]))
        if self._random.random() < 0.6:
            return self._step()
        return self._child() if self._random.random() < 0.5 else self._hang()

    def _child(self) -> Node:
        """Return work for a run of its own, which nobody sends events to and no step of which may be tried but once."""
        if self._random.random() < 0.3:
            return ["child", "left", ["wait", self._label("never"), 0]]
        work = [step for step in (self._step() for _ in range(4)) if step[1] != "once"]
        return ["child", self._random.choice(("awaited", "handle")), [self._random.choice(("seq", "gather")), [*work, ["sleep", 300]]]]

    def _hang(self) -> Node:
        return ["seq", [["step", "work", label := self._label(), 0, 100], ["hang", label]]]

    def _step(self) -> Node:
        kind = self._random.choice(OFTEN)
        fails = self._random.choice(FAILS.get(kind, (0, 0, 0, 1, 2, 99)))
        return ["step", kind, self._label(), fails, self._random.choice((0, 10, 300, 1200))]

    def _composed(self, depth: int) -> Node:
        kind = self._random.choice(COMPOSED)
        match kind:
            case "within" | "cancel":
                return [kind, self._random.randrange(50, 4000), self.node(depth)]
            case "finally":
                return [kind, self.node(depth), self._step()]
            case "limited":
                return [kind, self._random.randrange(1, 3), self._several(depth)]
            case "burst":
                return [kind, self._label(), self._several(depth)]
            case _:
                return [kind, self._several(depth)]

    def _several(self, depth: int) -> list[Node]:
        return [self.node(depth) for _ in range(self._random.randrange(2, 4))]

    def _label(self, what: str = "") -> str:
        self._count += 1
        return f"{self._prefix}{what}{self._count}"


def events(node: Node) -> list[str]:
    """Return the names of the events that a program waits for."""
    if node[:1] == ["wait"]:
        return [node[1]]
    return [name for part in _parts(node) for name in events(part)]


def _parts(node: Node) -> list[Node]:
    return [part for part in cast("list[Node | str | int]", node) if isinstance(part, list)]


def hangs(node: Node) -> bool:
    """Return whether a program has a node that does not give control back."""
    return "hang" in repr(node)


TINY: dict[str, Node] = {
    "two steps": ["seq", [["step", "quick", "a", 0, 0], ["step", "quick", "b", 0, 0]]],
    "step and timer": ["seq", [["step", "quick", "a", 0, 0], ["sleep", 700]]],
    "step and event": ["seq", [["step", "quick", "a", 0, 0], ["wait", "go", 0]]],
    "gather of two": ["gather", [["step", "work", "a", 0, 100], ["step", "work", "b", 1, 50]]],
}

__all__ = ["ATTEMPTS", "TINY", "Author", "Node", "events", "hangs"]
