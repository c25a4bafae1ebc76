"""External operations, as users write them."""
# ruff: noqa: F821 - reveal_type is for type checkers

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import romulus


@dataclass
class Refund:
    id: str


@romulus.operation(timeout=30, idempotent=True)
async def issue_refund(op: romulus.Operation, charge_id: str, amount_minor: int, *, note: str = "") -> Refund:
    return Refund(op.id)


@romulus.operation(timeout=30)
async def plain(op: romulus.Operation, charge_id: str, amount_minor: int) -> Refund:
    return Refund(op.id)


@plain.lookup
async def find(op: romulus.Operation, charge_id: str, amount_minor: int) -> romulus.LookupResult[Refund]:
    return romulus.Applied(Refund("1")) if op.attempt else romulus.NotApplied()


@plain.callback(source="psp")
def told(body: Mapping[str, Any]) -> romulus.Callback[Refund]:
    return romulus.Callback(body["id"], romulus.Applied(Refund("1")))


@romulus.operation
def sync_op(op: romulus.Operation, n: int) -> str:
    return str(n)


@sync_op.lookup
def find_sync(op: romulus.Operation, n: int) -> romulus.LookupResult[str]:
    return romulus.Unknown("down")


@romulus.workflow
async def refund(charge_id: str, amount: int) -> Refund:
    reveal_type(await issue_refund(charge_id, amount, note="x"))  # reveals: Refund
    reveal_type(await sync_op.aio(3))  # reveals: str
    reveal_type(await plain.options(timeout=5)(charge_id, amount))  # reveals: Refund
    try:
        return await plain(charge_id, amount)
    except romulus.OperationRejected as error:
        raise ValueError from error


@romulus.workflow
def sync_refund(charge_id: str) -> Refund:
    reveal_type(sync_op(3))  # reveals: str
    return plain.blocking(charge_id, 1)


async def review(client: romulus.AsyncClient) -> None:
    page = await client.operations(state="held")
    reveal_type(page[0])  # reveals: OperationRecord
    await client.resolve_operation(page[0].id, romulus.Applied(Refund("1")), reason="seen", reviewer="ada")
    await client.resolve_operation(page[0].id, romulus.GiveUp(), reason="gone", reviewer="ada")
