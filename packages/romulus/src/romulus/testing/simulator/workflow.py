"""The workflow that carries out a generated program: every construct of plain asyncio over steps, timers and waits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from romulus.authoring.children import start
from romulus.authoring.current import continue_as_new, current_run, now, patched, rng, uuid4
from romulus.authoring.waiting import wait_for_event
from romulus.authoring.workflow import workflow
from romulus.core.errors import ActivationTimeout, ChildFailed, TooDeep, WaitTimeout
from romulus.core.instance import current

from .ledger import Boom, active
from .provider import write
from .steps import POOLED, STEPS, THREADED, work

Node = list[Any]
LEFT: dict[str, Any] = {"left": "cancel", "dropped": "terminate", "kept": "abandon"}  # what becomes of a child that is not awaited


@workflow
async def program(text: str) -> str:
    """Carry out the program in *text* and return its result as JSON."""
    return json.dumps(await perform(json.loads(text)))


async def perform(node: Node) -> Any:
    """Carry out one node."""
    match node:
        case ["step", kind, label, fails, millis]:
            return await attempt(kind, label, fails, millis)
        case ["write", kind, *given]:
            return await write(kind, *given)
        case ["raise", label]:
            return await work(label, 99, 100)
        case ["sleep", millis]:
            return await nap(millis)
        case ["wait", name, millis]:
            return await event(name, millis)
        case ["common"]:
            await wait_for_event("common", type=str, correlation_id="all")
            return "taken"
        case ["draw", label]:
            return await draw(label)
        case ["patched", name]:
            return patched(name)
        case ["variant", label]:
            return await variant(label)
        case ["hang", label]:
            return hang(label)
        case ["child", how, each]:
            return await child(how, each)
        case ["endless", level]:
            return await endless(level)
        case ["role", _, each]:
            return await perform(each)
        case ["again", rest]:
            continue_as_new(program, json.dumps(rest))
        case _:
            return await compose(node)


async def compose(node: Node) -> Any:
    """Carry out a node made of others."""
    match node:
        case ["seq", nodes]:
            return [await perform(each) for each in nodes]
        case ["gather", nodes]:
            return list(await asyncio.gather(*(perform(each) for each in nodes)))
        case ["group", nodes]:
            return await group(nodes)
        case ["burst", label, nodes]:
            return await burst(label, nodes)
        case ["limited", count, nodes]:
            return await limited(count, nodes)
        case ["within", millis, each]:
            return await within(millis, each)
        case ["cancel", millis, each]:
            return await cancelled(millis, each)
        case ["first", nodes]:
            return await first(nodes)
        case ["finally", each, cleanup]:
            return await finally_(each, cleanup)
        case _:
            raise ValueError(f"no such node: {node!r}")


async def child(how: str, node: Node) -> Any:
    """Have a child carry out a node and say what came of it; one that is left, dropped or kept ends with its parent, or after it."""
    text = json.dumps(node)
    if how in LEFT:
        return how if (await start(program.options(parent_close=LEFT[how]), text)).id else "without an ID"
    try:
        match how:
            case "handle":
                outcome = await (await start(program, text))
            case "chosen":
                outcome = await (await start(program.options(id=chosen_id(node)), text))
            case _:
                outcome = await program(text)
    except ChildFailed as error:
        return f"child {error.status}"
    return json.loads(outcome)


async def endless(level: int) -> int:
    """Start itself as a child; return how far that goes."""
    try:
        return int(json.loads(await program(json.dumps(["endless", level + 1]))))
    except TooDeep:
        return level


def chosen_id(node: Node) -> str:
    """Return an ID for a child, of this run's own and the node's label."""
    return f"{current_run().id.replace('~', '+')}-{node[1]}"


async def attempt(kind: str, label: str, fails: int, millis: int) -> str:
    """Call a step and say what came of it."""
    try:
        if kind in THREADED:
            return await THREADED[kind].aio(label, fails, millis)
        return await {**STEPS, **POOLED}[kind](label, fails, millis)
    except Exception as error:  # noqa: BLE001 - whatever a step raises is a result here
        return f"failed {type(error).__name__}"


async def nap(millis: int) -> str:
    """Sleep, by the run's own time."""
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(millis / 1000)
    gone = asyncio.get_running_loop().time() - began
    return "slept" if gone >= millis / 1000 - 0.000_002 else f"woken after {gone} s of {millis} ms"


async def event(name: str, millis: int) -> str:
    """Wait for an event."""
    try:
        arrived = await wait_for_event(name, type=str, timeout=millis / 1000 if millis else None)
    except WaitTimeout:
        return "no event"
    return arrived.payload


async def draw(label: str) -> str:
    """Let a step depend on everything that a replay must draw alike."""
    before = now()
    drawn = f"{label} {rng().randrange(1_000_000)} {uuid4().hex[:8]} {before.isoformat()}"
    got = await work(drawn, 0, 50)
    return "drawn" if got == drawn and now() >= before else f"drew {drawn!r}, recorded {got!r}"


async def variant(label: str) -> str:
    """Call a step whose arguments depend on which code the worker has."""
    asked = f"{label} by {active().variant()}"
    got = await work(asked, 0, 400)
    return "fits" if got == asked else f"asked for {asked!r}, was given {got!r}"


def hang(label: str) -> str:
    """Do what the watchdog does to code that does not give control back, the first time."""
    instance = current()
    assert instance is not None
    if active().hang(instance.info.id, instance.info.generation, label):
        instance.interrupt()
        raise ActivationTimeout
    return "went on"


async def group(nodes: list[Node]) -> list[Any]:
    """Carry out nodes in a task group."""
    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(perform(each)) for each in nodes]
    return [task.result() for task in begun]


async def burst(label: str, nodes: list[Node]) -> str:
    """Carry out nodes in a task group that one of its tasks breaks."""
    task = asyncio.current_task()
    assert task is not None
    requests = task.cancelling()
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in nodes:
                tasks.create_task(perform(each))
            tasks.create_task(perform(["raise", label]))
    except* Boom:
        came = "burst"
        while task.cancelling() > requests:
            task.uncancel()  # Python 3.11 forgets to, where the group breaks while it is waited for: a timeout around it would be blind
    else:
        came = "whole"
    return came


async def limited(count: int, nodes: list[Node]) -> list[Any]:
    """Carry out nodes, so many at a time."""
    semaphore = asyncio.Semaphore(count)

    async def one(each: Node) -> Any:
        async with semaphore:
            return await perform(each)

    return list(await asyncio.gather(*(one(each) for each in nodes)))


async def within(millis: int, node: Node) -> Any:
    """Carry out a node within a time."""
    try:
        async with asyncio.timeout(millis / 1000):
            return await perform(node)
    except TimeoutError:
        return "out of time"


async def cancelled(millis: int, node: Node) -> Any:
    """Cancel a task in the middle."""
    task = asyncio.get_running_loop().create_task(perform(node))
    await asyncio.sleep(millis / 1000)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return "cancelled"


async def first(nodes: list[Node]) -> list[Any]:
    """Carry out nodes until one is done; cancel the others."""
    tasks = [asyncio.get_running_loop().create_task(perform(each)) for each in nodes]
    _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winner = next(number for number, task in enumerate(tasks) if task not in rest)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    return [winner, tasks[winner].result()]


async def finally_(node: Node, cleanup: Node) -> list[Any]:
    """Clean up durably, whatever happens."""
    got: list[Any] = []
    try:
        got.append(await perform(node))
    finally:
        got.append(await perform(cleanup))
    return got
