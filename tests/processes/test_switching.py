"""Threads wait less for the interpreter while `def` bodies run beside the loop, and as they did before once none runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event

import pytest

from romulus.host import switching
from romulus.host.pool import DaemonPool
from romulus.host.switching import BLOCKED_S, BODIES_S, ask

OWN = 0.003


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An interval that is neither ours nor the interpreter's first one, and nobody who asks for another: workers lost in other tests do."""
    monkeypatch.setattr(switching, "_asked", [])
    monkeypatch.setattr(switching, "_own", [])
    before = sys.getswitchinterval()
    sys.setswitchinterval(OWN)
    yield
    sys.setswitchinterval(before)


def interval() -> float:
    return round(sys.getswitchinterval(), 6)


def test_the_most_urgent_of_those_who_ask_decides_in_whatever_order_they_end() -> None:
    bodies = ask(BODIES_S)
    blocked = ask(BLOCKED_S)
    assert interval() == BLOCKED_S
    bodies()
    assert interval() == BLOCKED_S
    more = ask(BODIES_S)
    blocked()
    assert interval() == BODIES_S
    more()
    assert interval() == OWN


def test_an_end_is_told_once() -> None:
    first, second = ask(BODIES_S), ask(BODIES_S)
    first()
    first()
    assert interval() == BODIES_S
    second()
    assert interval() == OWN


def test_an_interval_that_is_shorter_already_stays() -> None:
    sys.setswitchinterval(0.000_01)
    end = ask(BLOCKED_S)
    assert interval() == 0.000_01
    end()
    assert interval() == 0.000_01


def test_it_is_asked_for_while_a_body_runs_in_the_pool_and_no_longer() -> None:
    pool, begun, go_on = DaemonPool(2, "test"), Event(), Event()

    def body() -> None:
        begun.set()
        go_on.wait(20)

    running = pool.submit(body)
    assert begun.wait(20)
    assert interval() == BODIES_S
    go_on.set()
    running.result(20)
    pool.shutdown(wait=True)
    assert interval() == OWN


def test_a_body_that_raises_leaves_nothing_behind() -> None:
    pool = DaemonPool(1, "test")
    assert isinstance(pool.submit(lambda: 1 / 0).exception(20), ZeroDivisionError)
    pool.shutdown(wait=True)
    assert interval() == OWN
