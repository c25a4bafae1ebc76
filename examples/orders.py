"""The quickstart of the README: kill it while it sleeps, start it again, and it goes on without charging twice."""

import asyncio

import romulus


@romulus.step(timeout=10)  # up to 3 attempts; its outcome is recorded once
async def charge(order: str, cents: int) -> str:
    return f"receipt for {order}: {cents}"


@romulus.step
async def email(to: str, text: str) -> None:
    print(f"to {to}: {text}")


@romulus.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order, 1999)
    await asyncio.sleep(10)  # durable: press Ctrl-C or kill -9 here
    packed = await romulus.wait_for_event("packed", correlation_id=order, type=bool, timeout=3 * 86400)
    if packed.payload:
        await email("ada@example.com", receipt)
    return receipt


app = romulus.App(workflows=[checkout])  # App(store=None, *, workflows, …): argument, else ROMULUS_STORE, else sqlite:///romulus.db

if __name__ == "__main__":
    print(app.run(checkout.options(id="checkout-42"), "42"))
