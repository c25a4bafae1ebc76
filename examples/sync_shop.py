"""A shop in plain `def`, as in a Django project: views start runs and pass on what the payment provider reports; workers do the work.

romulus worker examples.sync_shop:app &         # beside the web server, from the repository's root
python -m examples.sync_shop                    # what the views do, once
"""

from datetime import timedelta
from functools import cache

import romulus
from romulus import blocking


@romulus.step
def reserve(order: int, article: str) -> str:
    """Reserve one article."""
    return f"{article} for order {order}"


@romulus.step
def send_mail(to: str, text: str) -> None:
    """Send a mail; a `def` step runs in a thread, so it may block."""
    print(f"to {to}: {text}", flush=True)


@romulus.step
def give_back(reservation: str) -> None:
    """Undo a reservation."""
    print(f"given back: {reservation}", flush=True)


@romulus.workflow
def checkout(order: int, articles: list[str], mail: str) -> str:
    """Reserve, wait three days for the payment, then confirm or give everything back."""
    reservations = [reserve(order, article) for article in articles]
    try:
        paid = blocking.wait_for_event("paid", correlation_id=str(order), type=dict[str, int], timeout=timedelta(days=3))
    except romulus.WaitTimeout:
        blocking.map(give_back, reservations)
        return "expired"
    send_mail(mail, f"order {order}: {paid.payload['cents'] / 100:.2f} received, {len(reservations)} articles are yours")
    return "paid"


app = romulus.App(workflows=[checkout])


@cache
def client() -> romulus.Client:
    """Return the client of this process: made at the first request, so after the web server has forked."""
    return romulus.Client(app)


def order_view(order: int, articles: list[str], mail: str) -> str:
    """Take an order. The same order twice, after a double click or a time-out, is the same run."""
    return client().start(checkout.options(id=f"order-{order}", attributes={"mail": mail}), order, articles, mail).id


def payment_webhook(order: int, cents: int, delivery: str) -> bool:
    """Pass on what the provider reports, and return whether it had been reported before: providers deliver twice."""
    return client().send_event("paid", {"cents": cents}, correlation_id=str(order), event_id=delivery).duplicate


def status_view(order: int) -> str:
    """Return where an order stands."""
    return str(client().get(f"order-{order}").describe().status)


if __name__ == "__main__":
    run = order_view(7, ["lamp", "desk"], "ada@example.com")
    payment_webhook(7, 43610, "delivery-1")
    print(client().get(run, checkout).result(timeout=60))
    client().close()
