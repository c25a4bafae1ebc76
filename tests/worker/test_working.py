"""What a loop over claimed operations works ends with it, also where a cancellation gets lost on the way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from romulus.host import RealHost
from romulus.worker.operations.working import Working
from tests.worker.rig import eventually

PATIENCE_S = 20


class Deaf:
    """Work that takes its first cancellation for something else and goes on."""

    def __init__(self) -> None:
        self.begun, self.cancelled = False, 0

    async def work(self) -> None:
        self.begun = True
        while self.cancelled < 2:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled += 1


async def test_work_that_does_not_hear_its_first_cancellation_is_stopped_all_the_same() -> None:
    host, claimed, sent = RealHost(), Deaf(), Deaf()
    working = Working(cast("Any", SimpleNamespace(host=host)))

    async def send() -> None:
        working.sends()
        await sent.work()

    working.spawn(claimed.work(), "claimed")
    working.spawn(send(), "sent")
    await eventually(lambda: claimed.begun and sent.begun)
    await asyncio.wait_for(working.stop(0), PATIENCE_S)
    assert (claimed.cancelled, sent.cancelled, len(working)) == (2, 2, 0)
    host.close()
