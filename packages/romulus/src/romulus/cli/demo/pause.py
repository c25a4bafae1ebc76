"""Act two: a worker is frozen past its lease, loses its run, wakes up, and its late update is refused."""

from __future__ import annotations

from romulus.cli.output import brief, say
from romulus.client import AsyncHandle, EvidenceRecord
from romulus.core.machine import RunStatus

from .processes import LEASE_S, WorkerProcess
from .shop import Order, close_books, orders
from .stage import DemoFailed, Stage

TRIES_MAX = 6
REPORT_S = 3.0  # a worker that woke up reports at once, or has found out that it lost its lease


async def play(stage: Stage) -> None:
    """Play it and check it. A worker that notices its loss before it reports has nothing refused: then it is played again."""
    say("")
    say(f"Act 2. a worker frozen longer than its lease of {LEASE_S} s")
    for number in range(1, TRIES_MAX + 1):
        order = Order(f"200{number}", "dee@example.com", orders()[0].lines[:1])
        if await _played(stage, order):
            return
        say("    this time the worker noticed its loss before it reported anything; once more")
    stage.check(False, f"a late update was seen in {TRIES_MAX} tries")


async def _played(stage: Stage, order: Order) -> bool:
    handle = await stage.client.start(close_books.options(id=f"audit-{order.id}"), order)
    frozen, fence = await _frozen(stage, handle)
    replacement = stage.worker()
    await stage.until("the books are closed", lambda: _closed(stage, handle))
    before, result = await handle.history(), await handle.result()
    say(f"    {replacement.name} has taken the run over under a higher fence and finished it; {frozen.name} wakes up (SIGCONT)")
    frozen.resume()
    refused = await _refused(stage, handle)
    stopped = frozen.stop(), replacement.stop()
    if not refused:
        return False
    say("")
    for evidence in refused[:3]:
        say(f"    refused and kept as evidence: {evidence.kind} under fence {evidence.fence}: {brief(evidence.detail)}")
    stage.check(all(e.fence <= fence for e in refused), f"what came late came under the frozen worker's fence {fence}")
    unchanged = before == await handle.history() and result == await handle.result()
    stage.check(unchanged, "it changed nothing: the history and the result are as before")
    stage.check(before[-1].fence > fence, f"the outcomes after the takeover are recorded under fence {before[-1].fence}")
    stage.check(stopped == (0, 0), "both workers stopped gracefully with exit code 0")
    return True


async def _frozen(stage: Stage, handle: AsyncHandle[str]) -> tuple[WorkerProcess, int]:
    worker = stage.worker()

    async def auditing() -> bool:
        await stage.tell(handle.id)
        return any(e.run == handle.id and e.step == "audit" for e in stage.under_way())

    await stage.until("the books are being audited", auditing)
    worker.pause()
    fence = next(e.fence for e in stage.under_way() if e.run == handle.id)
    say(f"    {worker.name} frozen with SIGSTOP while it audits the books, under fence {fence}")
    return worker, fence


async def _closed(stage: Stage, handle: AsyncHandle[str]) -> bool:
    await stage.tell(handle.id)
    return (await handle.describe()).status is RunStatus.SUCCEEDED


async def _refused(stage: Stage, handle: AsyncHandle[str]) -> list[EvidenceRecord]:
    async def kept() -> bool:
        return bool(await handle.evidence())

    try:
        await stage.until("a late update is refused", kept, REPORT_S)
    except DemoFailed:
        return []
    return await handle.evidence()
