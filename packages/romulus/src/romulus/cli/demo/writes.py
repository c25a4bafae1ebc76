"""The workflow of the demo's third act: it writes to the CRM, as a user would have it do."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

import romulus

CRM_VARIABLE = "ROMULUS_DEMO_CRM"  # where the provider listens
NOT_FOUND = 404


@romulus.operation(name="demo_update_crm", timeout=20)
def update_crm(op: romulus.Operation, customer: str) -> str:
    """Write to the CRM."""
    body = json.dumps({"operation": op.id, "customer": customer}).encode()
    with urllib.request.urlopen(urllib.request.Request(os.environ[CRM_VARIABLE], body), timeout=15) as answer:  # noqa: S310 - our own
        return str(json.load(answer)["customer"])


@update_crm.lookup
def find_update(op: romulus.Operation, customer: str) -> romulus.LookupResult[str]:
    """Ask the CRM what it has applied under the operation's ID."""
    try:
        with urllib.request.urlopen(f"{os.environ[CRM_VARIABLE]}/{op.id}", timeout=15) as answer:  # noqa: S310 - our own
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            return romulus.NotApplied()
        raise
    return romulus.Applied(str(found["customer"]))


@romulus.step(name="demo_normalise")
async def normalise(customer: str) -> str:
    """Return the customer's address as the CRM has it."""
    return customer.strip().lower()


@romulus.step(name="demo_welcome")
async def welcome(customer: str) -> str:
    """Greet a customer that the CRM knows."""
    return f"welcome, {customer}"


@romulus.workflow(name="demo_write")
async def register(customer: str) -> str:
    """Tell the CRM of a customer, then greet."""
    return await welcome(await update_crm.aio(await normalise(customer)))
