"""A workflow that changes a customer's plan at the CRM: one effect, whatever is lost on the way."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

import romulus
import romulus.http


@dataclass
class Plan:
    """A customer's plan, as the CRM has it."""

    id: str
    customer: str
    plan: str


@romulus.resource
async def crm() -> AsyncIterator[httpx.AsyncClient]:
    """The connection to the CRM."""
    url, hooks = os.environ.get("CRM_URL", "http://127.0.0.1:8765"), romulus.http.recorder()
    async with httpx.AsyncClient(base_url=url, timeout=2, event_hooks=hooks) as client:
        yield client


PATIENT = romulus.Retry(max_attempts=5, initial=0.2)


@romulus.operation(timeout=3, settle=0.5, retry=PATIENT, lookup_retry=PATIENT)
async def change_plan(op: romulus.Operation, customer: str, plan: str) -> Plan:
    """Change the plan. The CRM's key is not relied on: what became of a lost answer is looked up."""
    try:
        answer = await crm.get().post("/plans", json={"customer": customer, "plan": plan}, headers=romulus.http.headers(op))
    except httpx.HTTPError as error:
        romulus.http.outcome(error)
        raise
    return Plan(**romulus.http.outcome(answer).json())


@change_plan.lookup
async def find_plan(op: romulus.Operation, customer: str, plan: str) -> romulus.LookupResult[Plan]:
    """Ask what the CRM has applied under the operation's ID."""
    answer = await crm.get().get(f"/plans/{op.id}")
    if answer.status_code == 404:
        return romulus.NotApplied()
    return romulus.Applied(Plan(**romulus.http.outcome(answer).json()))


@change_plan.callback(source="crm")
def plan_changed(body: Mapping[str, Any]) -> romulus.Callback[Plan]:
    """Read the CRM's signed webhook."""
    return romulus.Callback(body["key"], romulus.Applied(Plan(body["id"], body["customer"], body["plan"])))


@romulus.step
async def note(customer: str, plan: str) -> str:
    """Say what was done."""
    return f"{customer} has {plan}"


@romulus.workflow
async def upgrade(customer: str, plan: str) -> str:
    """Change the plan, then say so."""
    changed = await change_plan(customer, plan)
    return await note(changed.customer, changed.plan)


app = romulus.App(workflows=[upgrade], resources=[crm])

if __name__ == "__main__":
    print(app.run(upgrade.options(id=f"upgrade-{sys.argv[1]}"), sys.argv[1], sys.argv[2]))
