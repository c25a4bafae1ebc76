"""What `@romulus.operation` takes, and how it refuses the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import romulus
from romulus import DefinitionError, LookupResult, NotApplied, Operation, RomulusError
from romulus import Operation as Op


async def plain(op: Operation, customer: str) -> str:
    return customer


async def renamed(reference: Op, customer: str) -> str:
    return customer


def not_annotated(op: Any, customer: str) -> str:
    return customer


@pytest.mark.parametrize("fn", [plain, renamed, not_annotated])
def test_a_function_that_takes_the_operation_first_can_be_one(fn: Callable[..., Any]) -> None:
    assert romulus.operation(fn).name == fn.__name__


async def without() -> None: ...
async def by_keyword(*, op: Operation) -> None: ...
async def forgotten(customer: str, plan: str) -> None: ...
async def behind(customer: str, op: Operation) -> None: ...
async def several(op: Operation) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (without, r"^operation 'without' needs a first parameter for its ID: def without\(op: romulus.Operation, …\)"),
        (by_keyword, "^operation 'by_keyword' needs a first parameter for its ID"),
        (forgotten, r"^operation 'forgotten' takes 'customer' first, which is no romulus.Operation: write def forgotten\(op: romulus.Oper"),
        (behind, "^operation 'behind' takes 'customer' first"),
        (several, "^several is a generator function: an operation has one outcome"),
        (romulus.operation(plain), "^'plain' is declared already"),
        (7, "^an operation is made from a function, not from int"),
    ],
)
def test_a_function_that_cannot_be_one_is_refused_with_what_to_write(fn: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        romulus.operation(fn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, r"operation timeout must be above 0; None means 60 s"),
        ({"timeout": -1}, "operation timeout must not be negative"),
        ({"timeout": float("inf")}, "operation timeout must be finite"),
        ({"settle": float("nan")}, "operation settle must be finite"),
        ({"settle": -1}, "operation settle must not be negative"),
        ({"idempotent": 1}, "idempotent must be True or False, not 1"),
        ({"key_lifetime": 5}, "has key_lifetime= without idempotent=True"),
        ({"idempotent": True, "key_lifetime": 0}, "operation key_lifetime must be above 0; None means no limit"),
        ({"retry": 3}, "retry must be a romulus.Retry, not int"),
        ({"lookup_retry": None}, "lookup_retry must be a romulus.Retry, not NoneType"),
        ({"on_cancel": "ask"}, 'on_cancel must be "settle" or "abandon"'),
        ({"pool": ""}, "operation pool must not be empty"),
        ({"name": ""}, "operation name must not be empty"),
    ],
)
def test_an_option_out_of_its_range_is_refused_by_name(options: Any, message: str) -> None:
    with pytest.raises(RomulusError, match=message):
        romulus.operation(**options)(plain)


async def find(op: Operation, customer: str) -> LookupResult[str]:
    return NotApplied()


async def find_something_else(op: Operation, order: str) -> LookupResult[str]:
    return NotApplied()


def test_a_lookup_takes_what_its_operation_takes_and_there_is_one() -> None:
    declared: Any = romulus.operation(plain)
    with pytest.raises(DefinitionError, match="the lookup of operation 'plain' must take what the operation takes"):
        declared.lookup(find_something_else)
    declared.lookup(find)
    with pytest.raises(DefinitionError, match="operation 'plain' has a lookup already"):
        declared.lookup(find)


def test_a_source_has_one_callback() -> None:
    declared = romulus.operation(plain)

    def read(body: Any) -> Any: ...

    declared.callback(source="crm")(read)
    declared.callback(source="bank")(read)
    with pytest.raises(DefinitionError, match="operation 'plain' has a callback for source 'crm' already"):
        declared.callback(source="crm")(lambda body: read(body))
