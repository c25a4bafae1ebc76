"""One write at the example CRM for each ability of a provider, with doors that a test shuts: before the send, after the reply."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import httpx

import romulus
import romulus.http
from romulus import LookupResult, Operation, Retry
from romulus.host import RealHost
from tests.processes.effects import door, note

TIMEOUT_S = float(os.environ.get("WRITES_TIMEOUT_S", "1.5"))
SETTLE_S = float(os.environ.get("WRITES_SETTLE_S", "0.3"))
POOL = os.environ.get("WRITES_POOL")  # whose workers send; else the one that has the run does
DIE_AT = "WRITES_DIE_AT"  # variable: crash points, "a>b>c": the process kills itself at the first c after the first b after the first a
RETRY = Retry(max_attempts=6, initial=0.1, max_delay=0.5)


def _post(op: Operation, ability: str, *, keyed: bool) -> str:
    """Send it. The CRM's key is relied on where there is one; else it is applied as often as it comes, and found by its reference."""
    door("send", ability=ability, operation=op.id)
    more: dict[str, Any] = {"headers": romulus.http.headers(op)} if keyed else {}
    body = {"customer": ability, "plan": "pro", **({} if keyed else {"reference": op.id})}
    try:
        answer = httpx.post(f"{os.environ['CRM_URL']}/plans", json=body, timeout=TIMEOUT_S, verify=False, **more)
    except httpx.HTTPError as error:
        romulus.http.outcome(error)
        raise
    romulus.http.outcome(answer)
    door("reply", ability=ability, operation=op.id)
    return ability


def _find(op: Operation) -> LookupResult[str]:
    answer = httpx.get(f"{os.environ['CRM_URL']}/plans/{op.id}", timeout=TIMEOUT_S, verify=False)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return romulus.NotApplied()
    return romulus.Applied(romulus.http.outcome(answer).json()["customer"])


@romulus.operation(timeout=TIMEOUT_S, pool=POOL, settle=SETTLE_S, retry=RETRY, lookup_retry=RETRY)
def looked_up(op: Operation, ability: str) -> str:
    return _post(op, ability, keyed=False)


@looked_up.lookup
def find_looked_up(op: Operation, ability: str) -> LookupResult[str]:
    return _find(op)


@romulus.operation(timeout=TIMEOUT_S, pool=POOL, idempotent=True, retry=RETRY)
def keyed(op: Operation, ability: str) -> str:
    return _post(op, ability, keyed=True)


@romulus.operation(timeout=TIMEOUT_S, pool=POOL, settle=SETTLE_S, idempotent=True, retry=RETRY, lookup_retry=RETRY)
def both(op: Operation, ability: str) -> str:
    return _post(op, ability, keyed=True)


@both.lookup
def find_both(op: Operation, ability: str) -> LookupResult[str]:
    return _find(op)


@romulus.operation(timeout=TIMEOUT_S, pool=POOL, retry=RETRY)
def blind(op: Operation, ability: str) -> str:
    return _post(op, ability, keyed=False)


@romulus.operation(timeout=TIMEOUT_S, pool=POOL, idempotent=True, key_lifetime=TIMEOUT_S + 0.05, retry=RETRY)
def brief(op: Operation, ability: str) -> str:
    """Its key is known too briefly for a second send."""
    return _post(op, ability, keyed=True)


WRITES: dict[str, Any] = {"lookup": looked_up, "key": keyed, "both": both, "neither": blind, "brief": brief}


@romulus.step
def before(ability: str) -> None:
    note("before", ability=ability)


@romulus.step
def after(ability: str) -> str:
    door("after", ability=ability)
    return f"{ability} has pro"


@romulus.workflow
async def write(ability: str) -> str:
    """A step, a write, a step."""
    await before.aio(ability)
    try:
        return await after.aio(await WRITES[ability].aio(ability))
    except romulus.OperationAbandoned:
        return f"{ability} given up"


@romulus.workflow
async def write_all(abilities: list[str]) -> list[str]:
    """Many writes at once."""
    return list(await asyncio.gather(*(WRITES[ability].aio(ability) for ability in abilities)))


app = romulus.App(workflows=[write, write_all])


def _die_at(points: list[str]) -> None:
    """Kill this process where the engine passes the last of *points*, each looked for after the one before it."""
    left = list(points)

    def crash_point(self: RealHost, name: str) -> None:
        if name == left[0]:
            del left[0]
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    RealHost.crash_point = crash_point  # type: ignore[method-assign]


if DIE_AT in os.environ:
    _die_at(os.environ[DIE_AT].split(">"))
