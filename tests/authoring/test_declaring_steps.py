"""What `@romulus.step` makes of a function, and what it refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

import romulus
from romulus.authoring.suspends import suspends


@romulus.step(retry=romulus.Retry(max_attempts=7), timeout=timedelta(milliseconds=1500), heartbeat_timeout=2, pool="heavy")
async def double(n: int, *, times: int = 1) -> int:
    """Return n doubled."""
    return n * 2**times


@romulus.step
def triple(n: int) -> int:
    return n * 3


@romulus.step
def thread_name() -> str:
    return threading.current_thread().name


async def test_outside_a_run_a_step_is_the_plain_function() -> None:
    assert await double(4, times=2) == 16
    assert triple(4) == 12
    assert await double.fn(4) == 8


async def test_outside_a_run_aio_runs_a_def_step_in_a_thread() -> None:
    assert await thread_name.aio() != threading.current_thread().name


def test_outside_a_run_blocking_runs_an_async_step_to_its_end() -> None:
    assert double.blocking(4) == 8


async def test_blocking_refuses_to_block_an_event_loop() -> None:
    with pytest.raises(romulus.WrongColour, match=r"write await double\(…\)"):
        double.blocking(4)


def test_options_are_kept_in_microseconds() -> None:
    assert (double.spec.timeout, double.spec.heartbeat_timeout, double.spec.pool) == (1_500_000, 2_000_000, "heavy")
    assert double.spec.retry.max_attempts == 7


def test_a_step_has_three_attempts_and_no_timeout_unless_it_says_otherwise() -> None:
    assert (triple.spec.retry, triple.spec.timeout, triple.spec.pool) == (romulus.Retry(max_attempts=3), None, None)


def test_a_step_is_named_for_its_function_never_for_its_module() -> None:
    assert (double.name, triple.name) == ("double", "triple")


def test_a_step_shows_the_functions_name_doc_and_signature() -> None:
    assert (double.__name__, double.__doc__) == ("double", "Return n doubled.")
    assert list(inspect.signature(double).parameters) == ["n", "times"]


def test_attributes_of_the_function_do_not_hide_the_steps_own() -> None:
    def send() -> None: ...

    vars(send)["options"] = vars(send)["spec"] = "mine"
    assert romulus.step(name="other")(send).options(timeout=1).spec.timeout == 1_000_000


def test_options_make_a_copy_and_leave_the_step_as_it_was() -> None:
    copy = double.options(name="again", timeout=None)
    assert (copy.name, copy.spec.timeout, copy.spec.pool) == ("again", None, "heavy")
    assert (double.name, double.spec.timeout) == ("double", 1_500_000)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"no option 'retries'; it has name, retry, timeout, heartbeat_timeout, pool, transaction"):
        romulus.step(retries=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"no option 'n'; it has name, retry, timeout, heartbeat_timeout, pool"):
        double.options(n=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "step name must not be empty"),
        ({"name": "a\x00b"}, "step name has a NUL"),
        ({"name": "\ud800"}, "step name has a lone surrogate"),
        ({"name": "n" * 201}, "step name has 201 characters"),
        ({"name": 7}, "step name must be a str"),
        ({"retry": 3}, "retry must be a romulus.Retry"),
        ({"timeout": 0}, "step timeout must be above 0"),
        ({"timeout": -1}, "step timeout must not be negative"),
        ({"timeout": float("nan")}, "step timeout must be finite"),
        ({"timeout": "10"}, "step timeout must be a timedelta or a number"),
        ({"heartbeat_timeout": 0}, "step heartbeat_timeout must be above 0"),
        ({"pool": ""}, "step pool must not be empty"),
        ({"transaction": "yes"}, "transaction must be True or False, not 'yes'"),
        ({"transaction": True, "pool": "heavy"}, "cannot have both transaction=True and pool="),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    async def body() -> None: ...

    with pytest.raises((romulus.RomulusError, ValueError), match=message):
        romulus.step(**options)(body)


def test_a_transactional_step_gets_no_pool_through_its_options_either() -> None:
    @romulus.step(transaction=True)
    async def write() -> None: ...

    with pytest.raises(romulus.DefinitionError, match="cannot have both"):
        write.options(pool="heavy")


class Thing:
    async def method(self, n: int) -> int:
        return n

    def __call__(self, n: int) -> int:
        return n


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def hidden(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def returns_coroutine(n: int) -> Coroutine[Any, Any, int]:
    return Thing().method(n)


REFUSED: list[tuple[object, str]] = [
    (Thing.method, "is a method: .* a function; get the object from a resource"),
    (Thing().method, "is a method: .* a function; get the object from a resource"),
    (Thing(), "made from a def or async def function, not from Thing: wrap the call in a function"),
    (Thing, "not from type"),
    (functools.partial(returns_coroutine, 1), "not from partial"),
    (len, "not from builtin_function_or_method"),
    (staticmethod(returns_coroutine), "put @staticmethod above"),
    (classmethod(cast("Any", returns_coroutine)), "a class method cannot be"),
    (generator, "is a generator function: .* return a list instead"),
    (async_generator, "is a generator function: .* return a list instead"),
    (lambda n: n, "a lambda has no name .* or give name="),
    (hidden(Thing().method), "behind a decorator whose wrapper is def: make that wrapper async def"),
    (returns_coroutine, "returns a coroutine: declare it async def"),
    (double, "'double' is declared already"),
    ("charge", "made from a function, not from str"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
@pytest.mark.parametrize("decorator", [romulus.step, romulus.workflow, romulus.step(), romulus.workflow(version="2")])
def test_what_cannot_be_declared_is_refused_with_its_remedy(decorator: Callable[[Any], Any], given: object, message: str) -> None:
    with pytest.raises(romulus.DefinitionError, match=message):
        decorator(given)


def test_a_method_is_refused_whatever_its_first_parameter_is_called() -> None:
    with pytest.raises((romulus.DefinitionError, RuntimeError)) as caught:  # 3.11 wraps what __set_name__ raises

        class Account:
            @romulus.step
            async def charge(this, cents: int) -> None: ...

    assert "step 'charge' is declared in class" in str(caught.value.__cause__ or caught.value)


async def test_a_static_method_may_be_a_step() -> None:
    class Account:
        @staticmethod
        @romulus.step
        async def charge(cents: int) -> int:
            return cents

    assert await Account.charge(5) == 5


def test_a_step_may_be_an_attribute_of_a_class_that_did_not_declare_it() -> None:
    class Account:
        charge = triple

    assert Account().charge(2) == 6


def test_a_lambda_with_a_name_may_be_a_step() -> None:
    assert romulus.step(name="plus")(lambda n: n + 1)(1) == 2


async def no_await() -> int:
    async def inner() -> None:
        await asyncio.sleep(0)

    return len([inner])


async def awaits() -> None:
    await asyncio.sleep(0)


async def enters() -> None:
    async with asyncio.timeout(1):
        pass


async def iterates() -> list[int]:
    return [n async for n in async_generator()]


@pytest.mark.parametrize(
    ("fn", "answer"),
    [(no_await, False), (double.fn, False), (awaits, True), (enters, True), (iterates, True), (hidden(awaits), True), (len, True)],
)
def test_only_a_body_without_a_place_to_suspend_is_said_not_to(fn: Callable[..., Any], answer: bool) -> None:
    assert suspends(fn) is answer
