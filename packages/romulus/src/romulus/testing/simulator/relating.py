"""Seeds of families: children of every policy and steps in pools, and what must hold of both at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final, TypeGuard

from romulus.core.machine import RunStatus
from romulus.core.record import Kind

from .judge import Judge
from .people import Started
from .programs import FAILS, Author, Node
from .scenario import Action, Scenario, draw_rates
from .seed import Verdict, run_world
from .stage import Stage
from .steps import BOTH, POOLED_KINDS
from .world import World

# How a child is started, with the ends it may come to of itself; what is left of a parent ends as that parent's end says.
ROLES: Final = {
    "awaited": {RunStatus.SUCCEEDED, RunStatus.CANCELLED},
    "handle": {RunStatus.SUCCEEDED, RunStatus.CANCELLED},
    "chosen": {RunStatus.SUCCEEDED, RunStatus.CANCELLED},
    "left": {RunStatus.CANCELLED},
    "dropped": {RunStatus.TERMINATED},
    "kept": {RunStatus.SUCCEEDED},
}


def with_family(random: Random, node: Node, depth: int = 0) -> Node:
    """Return *node* with many of its steps exchanged for children and for steps in a pool."""
    if node[:1] == ["step"] and random.random() < 0.7:
        label, millis = node[2], node[4]
        if depth > 1 or random.random() < (0.6, 0.8)[depth]:
            kinds = [kind for kind in POOLED_KINDS if depth == 0 or kind != "far_once"]
            kind = random.choice(kinds)
            return ["step", kind, label, random.choice(FAILS["once"] if kind == "far_once" else (0, 0, 0, 1, 2, 99)), millis]
        return _child(random, random.choice(list(ROLES)), label, depth)
    return [with_family(random, part, depth) if _is_node(part) else part for part in node]


def _is_node(part: Any) -> TypeGuard[Node]:
    return isinstance(part, list)


def _child(random: Random, how: str, label: str, depth: int) -> Node:
    """Return a child; nobody sends events to it, and no step of it may be tried but once."""
    if how in ("left", "dropped"):
        return ["child", how, ["role", how, ["wait", f"{label}never", 0]]]
    steps = [["step", "work", f"{label}.{number}", 0, random.choice((0, 10, 600))] for number in range(random.randrange(1, 3))]
    work = with_family(random, [random.choice(("seq", "gather")), steps], depth + 1)
    return ["child", how, ["role", f"{how}:{label}" if how == "chosen" else how, work]]


class Relating(Scenario):
    """A scenario whose programs have families; some workers serve the pool only, some the runs only."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pools = BOTH
        world.rates.related = self.random.random() < 0.5
        self._count = 0

    async def start_run(self) -> None:
        """Start a run of a new program."""
        if self._count < 2:
            self._count += 1
            author = Author(self.world.fork_random(), f"r{self._count}.", variants=False)
            await self.people.start(f"run{self._count}", with_family(self.random, author.program()), **self._options())

    async def boot(self) -> None:
        """Start a worker."""
        if len(self.living()) < 3:
            pools = self.random.choice((BOTH, BOTH, BOTH[:1], BOTH[1:]))
            self.servers.append(await self.world.boot_worker(self.random.choice(self.variants), self.random.choice((1, 2, 20)), pools))

    def done(self) -> bool:
        """Return whether every run has ended and nothing is left to be asked of a child."""
        assert self.world.reader is not None
        return super().done() and not self.world.reader.rows("SELECT 1 FROM to_close")

    def _actions(self) -> dict[Action, int]:
        return super()._actions() | {self.cancel: 3, self.retry: 5, self.fork: 0}  # chosen IDs are of the run: a fork's would be others


def run_family(seed: int) -> Verdict:
    """Run one seed."""
    return run_world(f"family {seed}", seed, _relating)


async def _relating(world: World) -> None:
    world.rates = draw_rates(world.fork_random())
    scenario = Relating(world)
    await scenario.run()
    if not world.broken:
        Judge(scenario).judge()
        for complaint in complaints(scenario):
            world.fail(complaint)


def complaints(stage: Stage) -> Iterator[str]:
    """Yield what does not hold of children."""
    assert stage.world.reader is not None
    depths = dict(stage.world.reader.rows("SELECT id, depth FROM runs"))
    results = _results(stage)
    for run in stage.people.runs.values():
        if depths.get(run.id):
            yield from _ended_as_started(stage, run)
    for entry in (entry for entries in stage.world.reader.journal.values() for entry in entries if entry.kind == Kind.CHILD and entry.info):
        run_id, status = json.loads(entry.info)
        if status == RunStatus.SUCCEEDED and json.loads(entry.body) not in results.get(run_id, ()):
            yield f"{run_id}: its parent was told {entry.body!r}, it came to {results.get(run_id)!r}"


def _ended_as_started(stage: Stage, run: Started) -> Iterator[str]:
    how, _, label = run.text[1].partition(":") if run.text[0] == "role" else ("awaited", "", "")
    if stage.status(run) not in ROLES[how] and not run.disturbed:
        yield f"{run.id}: a child that was {how} ended {stage.status(run)}"
    if ("~" in run.id) == bool(label):
        yield f"{run.id}: {'a chosen ID is' if label else 'an ID that nobody chose is not'} in the reserved namespace"


def _results(stage: Stage) -> dict[str, list[Any]]:
    """Return what the generations of each run came to."""
    assert stage.world.reader is not None
    found: dict[str, list[Any]] = {}
    for run_id, result in stage.world.reader.rows(
        "SELECT r.id, g.result FROM runs r JOIN generations g ON g.run = r.key WHERE g.result NOT NULL"
    ):
        found.setdefault(run_id, []).append(json.loads(result))
    return found
