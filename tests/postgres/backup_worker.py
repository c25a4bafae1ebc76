"""A worker process for the tests of backups: one file says what it has done at the provider, another lets it end what it has begun."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import romulus
from romulus.host import RealHost
from romulus.store import open_store
from romulus.worker import Worker, WorkerSettings

_provider: list[Path] = []


def did(what: str) -> None:
    with (_provider[0] / "done").open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def done(directory: Path, what: str) -> int:
    """Return how often *what* was done."""
    file = directory / "done"
    return file.read_text(encoding="utf-8").split("\n").count(what) if file.exists() else 0


async def gate() -> None:
    while not (_provider[0] / "gate").exists():
        await asyncio.sleep(0.01)


@romulus.step
async def pack(run: str) -> str:
    return f"{run} packed"


@romulus.step
async def long(run: str) -> str:
    did(run)
    await gate()
    return f"{run} ended"


@romulus.operation(timeout=30)
async def charge(op: romulus.Operation, run: str) -> str:
    did(run)
    return f"{run} charged"


@romulus.operation(timeout=30)
async def slowly(op: romulus.Operation, run: str) -> str:
    did(run)
    await gate()
    return f"{run} charged"


@romulus.workflow
async def plain() -> str:
    return await pack("plain")


@romulus.workflow
async def waiting() -> str:
    await pack("waiting")
    await romulus.wait_for_event("go", correlation_id="waiting", type=bool)
    return await pack("waiting")


@romulus.workflow
async def claimed() -> str:
    await pack("claimed")
    return await long("claimed")


@romulus.workflow
async def charging() -> str:
    await pack("charging")
    await romulus.wait_for_event("go", correlation_id="charging", type=bool)
    return await charge("charging")


@romulus.workflow
async def sending() -> str:
    return await slowly("sending")


WORKFLOWS = {"plain": plain, "waiting": waiting, "claimed": claimed, "charging": charging, "sending": sending}


async def serve(url: str, provider: str) -> None:
    _provider.append(Path(provider))
    host = RealHost()
    store = open_store(url, host)
    await store.open()
    app = romulus.App(url, workflows=[*WORKFLOWS.values()])
    settings = WorkerSettings(lease=2_000_000, sweep=200_000, poll=200_000)
    await Worker(store, host, app.registry, concurrency=10, settings=settings).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
