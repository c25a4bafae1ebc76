"""A live database put back from a backup: old workers are refused, runs finish, and nothing that was sent is sent again blindly."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.core.operations import OperationState
from tests.postgres.kit import until
from tests.postgres.server import Database, programs

sent: Counter[str] = Counter()  # sends that reached the provider, by operation name
applied: dict[str, str] = {}  # what the provider has, by operation ID
gate = asyncio.Event()


def provider(op: romulus.Operation, name: str) -> str:
    sent[name] += 1
    return applied.setdefault(op.id, f"{name} done")


@romulus.operation(timeout=30)
async def blind(op: romulus.Operation, run: str) -> str:
    return provider(op, "blind")


@romulus.operation(timeout=30)
async def slow(op: romulus.Operation, run: str) -> str:
    done = provider(op, "slow")
    await gate.wait()
    return done


@romulus.operation(timeout=1)
async def looked(op: romulus.Operation, run: str) -> str:
    return provider(op, "looked")


@looked.lookup
async def find(op: romulus.Operation, run: str) -> romulus.LookupResult[str]:
    return romulus.Applied(applied[op.id]) if op.id in applied else romulus.NotApplied()


@romulus.operation(timeout=30, idempotent=True)
async def keyed(op: romulus.Operation, run: str) -> str:
    return provider(op, "keyed")


@romulus.step
async def pack(run: str) -> str:
    return f"{run} packed"


async def go() -> str:
    run = romulus.current_run().id
    await pack(run)
    await romulus.wait_for_event("go", correlation_id=run, type=bool)
    return run


@romulus.workflow
async def plain() -> str:
    return await pack(await go())


@romulus.workflow
async def blindly() -> str:
    return await blind(await go())


@romulus.workflow
async def slowly() -> str:
    return await slow(await pack("slow"))


@romulus.workflow
async def looking() -> str:
    return await looked(await go())


@romulus.workflow
async def keying() -> str:
    return await keyed(await go())


@romulus.workflow
async def parent() -> str:
    run = await go()
    return await keying_child.options(id=f"child of {run}")()


@romulus.workflow
async def keying_child() -> str:
    return await keyed("child")


@romulus.workflow
async def first_pass() -> str:
    await go()
    romulus.continue_as_new(second_pass)


@romulus.workflow
async def second_pass() -> str:
    return await keyed("second pass")


WORKFLOWS: dict[str, Any] = {
    "plain": plain, "blind": blindly, "slow": slowly, "looked": looking, "keyed": keying, "parent": parent, "passes": first_pass,
}  # fmt: skip
WAITING = [name for name in WORKFLOWS if name != "slow"]


@pytest.fixture
def own(own_database: Database) -> Database:
    sent.clear()
    applied.clear()
    gate.clear()
    return own_database


def app_of(database: Database) -> romulus.App:
    return romulus.App(database.url, workflows=[*WORKFLOWS.values(), keying_child, second_pass])


def command(database: Database, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "romulus.cli", *arguments, "--store", database.url, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tool(name: str, *arguments: str) -> None:
    subprocess.run([str(programs() / name), *arguments], check=True, capture_output=True)


def back_up(database: Database, file: Path) -> None:
    tool("pg_dump", "--format=custom", f"--file={file}", database.url)


def put_back(database: Database, file: Path) -> None:
    """Replace the database under whoever uses it."""
    with database.server.connect() as connection:
        connection.execute(f"DROP DATABASE {database.name} WITH (FORCE)")  # type: ignore[arg-type]
        connection.execute(f"CREATE DATABASE {database.name}")  # type: ignore[arg-type]
    tool("pg_restore", f"--dbname={database.url}", str(file))


def statuses(database: Database) -> dict[str, str]:
    return dict(database.execute("SELECT id, status FROM romulus.runs"))  # type: ignore[arg-type]


async def test_a_restored_database_goes_on_without_sending_again_what_was_sent_after_the_backup(own: Database, tmp_path: Path) -> None:
    app = app_of(own)
    async with app.client() as client, app.worker():
        for name, workflow in WORKFLOWS.items():
            await client.start(workflow.options(id=name))
        await until(lambda: [statuses(own).get(name) for name in WAITING] == ["waiting"] * len(WAITING) and sent["slow"] == 1)
        ((old,),) = own.execute("SELECT id FROM romulus.workers")
        await asyncio.to_thread(back_up, own, tmp_path / "backup")
        gate.set()
        for name in WAITING:
            await client.send_event("go", True, correlation_id=name)
        assert [await client.get(name).result(timeout=60) for name in WORKFLOWS if name != "plain"] == [
            "blind done", "slow done", "looked done", "keyed done", "keyed done", "keyed done",
        ]  # fmt: skip
        assert sent == {"blind": 1, "slow": 1, "looked": 1, "keyed": 3}

        await asyncio.to_thread(put_back, own, tmp_path / "backup")
        told = await asyncio.to_thread(command, own, "restore", "--yes")

        held = {run["id"]: run["hold_kind"] for run in told["runs"]}
        assert held == {"blind": "restore", "slow": "review", "looked": "restore", "keyed": "restore"}
        assert {statuses(own)[name] for name in held} == {"held"}
        await until(lambda: own.execute("SELECT id FROM romulus.workers WHERE NOT dead") not in ([], [(old,)]))
        assert own.execute("SELECT dead FROM romulus.workers WHERE id = %s", old) == [(True,)]
        await goes_on(own, client)


async def goes_on(own: Database, client: romulus.AsyncClient) -> None:
    for name in WAITING:
        await client.send_event("go", True, correlation_id=name)
    assert await client.get("plain").result(timeout=60) == "plain packed"
    assert await client.get("parent").result(timeout=60) == "keyed done"
    assert await client.get("passes").result(timeout=60) == "keyed done"
    assert sent == {"blind": 1, "slow": 1, "looked": 1, "keyed": 5}
    assert {statuses(own)[name] for name in ("blind", "slow", "looked", "keyed")} == {"held"}

    assert await asyncio.to_thread(command, own, "restore", "--release", "--yes") == {"released": 3}
    assert await client.get("keyed").result(timeout=60) == "keyed done"
    await until(lambda: own.execute("SELECT hold_kind FROM romulus.runs WHERE id = 'blind'") == [("review",)])
    assert sent == {"blind": 1, "slow": 1, "looked": 1, "keyed": 6}
    assert len(applied) == 6, "each send of after the restore met the operation ID of before, also of a child and a later pass"

    for row in await client.operations(state="held"):
        await client.resolve_operation(row.id, romulus.Applied(applied[row.id]), reason="seen there", reviewer="ada")
    assert await client.get("blind").result(timeout=60) == "blind done"
    assert await client.get("slow").result(timeout=60) == "slow done"
    assert await client.get("looked").result(timeout=60) == "looked done"
    assert sent == {"blind": 1, "slow": 1, "looked": 1, "keyed": 6}
    states = own.execute("SELECT DISTINCT state FROM romulus.operations")
    assert states == [(OperationState.CONFIRMED.value,)]
