"""Sleeping on the host's clock."""

from __future__ import annotations

import asyncio

from romulus.core.ports import Host


async def pause(host: Host, duration: int) -> None:
    """Sleep for *duration* µs of the host's clock."""
    over = asyncio.Event()
    handle = host.call_later(duration, over.set)
    try:
        await over.wait()
    finally:
        handle.cancel()
