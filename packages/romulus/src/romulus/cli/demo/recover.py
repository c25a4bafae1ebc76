"""Act three: a write is applied, its answer is lost, its worker is killed: it is looked up, not sent again."""

from __future__ import annotations

from romulus.cli.output import say
from romulus.client import AsyncHandle, OperationRecord

from .crm import Crm
from .stage import Stage
from .writes import CRM_VARIABLE, register


async def play(stage: Stage) -> None:
    """Play it and check it."""
    say("")
    say("Act 3. a write whose answer is lost, and kill -9")
    with Crm() as crm:
        stage.environment[CRM_VARIABLE] = crm.url
        crm.lose_answers = 1
        handle = await stage.client.start(register.options(id="register-eve"), " Eve@example.com ")
        await _killed(stage, crm, handle)
        second = stage.worker()
        result = await handle.result(timeout=60)
        await stage.tell(handle.id)
        say("")
        await _check(stage, crm, result)
        stage.check(second.stop() == 0, f"{second.name} stopped gracefully with exit code 0")


async def _killed(stage: Stage, crm: Crm, handle: AsyncHandle[str]) -> None:
    first = stage.worker()

    async def applied() -> bool:
        await stage.tell(handle.id)
        return bool(crm.applied)

    await stage.until("the CRM has applied the write", applied)
    operation = await _operation(stage)
    stage.check(operation.state == "armed", f"the intent was saved before anything was sent: operation {operation.id} is {operation.state}")
    say("    the CRM has applied the write and keeps its answer back")
    first.kill()
    say(f"    {first.name} killed with SIGKILL: nobody knows what became of the write")


async def _check(stage: Stage, crm: Crm, result: str) -> None:
    operation = await _operation(stage)
    history = (await stage.client.operation(operation.id)).history
    kinds = [line.kind for line in history]
    stage.check(kinds == ["lost", "lookup: applied"], f"the operation was lost with its worker and looked up: {', '.join(kinds)}")
    stage.check(operation.state == "confirmed", "its outcome is saved: confirmed")
    stage.check(result == "welcome, eve@example.com", f"the run went on with what the CRM said: {result!r}")
    stage.check(len(crm.applied) == 1, "the CRM has exactly one write")


async def _operation(stage: Stage) -> OperationRecord:
    (operation,) = await stage.client.operations()
    return operation
