"""The README's first screen, as a type checker sees it."""
# ruff: noqa: F821 - reveal_type is for type checkers

import asyncio

import romulus


@romulus.step(retry=romulus.Retry(max_attempts=5), timeout=10)
async def charge(order: str, cents: int) -> str:
    return f"receipt for {order}: {cents}"


@romulus.step
async def email(to: str, text: str) -> None:
    print(f"to {to}: {text}")


@romulus.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order, 1999)
    reveal_type(receipt)  # reveals: str
    await asyncio.sleep(10)
    decision = await romulus.wait_for_event("packed", correlation_id=order, type=bool, timeout=3 * 86400)
    reveal_type(decision)  # reveals: Event[bool]
    if decision.payload:
        await email("ada@example.com", receipt)
    return receipt


app = romulus.App(workflows=[checkout])

if __name__ == "__main__":
    print(app.run(checkout.options(id="checkout-42"), "42"))
    reveal_type(charge)  # reveals: Step[(order: str, cents: int), str]
    reveal_type(checkout.options(id="checkout-42"))  # reveals: Workflow[(order: str), str]
    reveal_type(app.run(checkout, "42"))  # reveals: str
