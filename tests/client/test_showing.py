"""How values are shown: redacted where the code says so, exact numbers, and never an exception for what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

import romulus
from romulus import AsyncClient, Redacted

from .world import app_at, working


@dataclass
class Card:
    owner: str
    number: Annotated[str, Redacted]


@romulus.step
async def issue(owner: str) -> Card:
    return Card(owner, "4111-1111")


@romulus.workflow
async def issues(owner: str) -> Card:
    return await issue(owner)


@romulus.operation(timeout=5)
async def order(op: romulus.Operation, card: Annotated[str, Redacted], copies: int) -> Card:
    return Card("ada", card)


@romulus.workflow
async def orders(owner: str) -> Card:
    return await order("4111-1111", 2)


@romulus.workflow
async def counts(number: Annotated[str, Redacted]) -> int:
    return len(number)


class Reversed:
    """A codec that anyone can break, but not read by accident."""

    def encode(self, data: bytes) -> bytes:
        return b"!" + data[::-1]

    def decode(self, data: bytes) -> bytes:
        if not data.startswith(b"!"):
            raise ValueError("not mine")
        return data[:0:-1]


async def test_what_the_code_marks_is_hidden_in_history_and_result_and_whole_for_the_caller(tmp_path: Path) -> None:
    async with working(app_at(tmp_path, [issues])) as client:
        handle = await client.start(issues, "ada")

        assert await handle.result(timeout=30) == Card("ada", "4111-1111")
        assert [entry.value for entry in await handle.history()] == [{"owner": "ada", "number": "[redacted]"}]
        assert (await handle.describe()).result == {"owner": "ada", "number": "[redacted]"}
        assert await client.get(handle.id, issues).result() == Card("ada", "4111-1111")


async def test_encrypted_values_are_read_through_the_app_and_said_to_be_unreadable_without_it(tmp_path: Path) -> None:
    app = app_at(tmp_path, [issues], codec=Reversed())
    async with working(app) as client, AsyncClient(app.source.url) as blind:
        handle = await client.start(issues, "ada")
        assert await handle.result(timeout=30) == Card("ada", "4111-1111")

        unread = blind.get(handle.id)
        assert "not readable without its App" in (await unread.history())[0].value
        assert "not readable without its App" in (await unread.describe()).result
        with pytest.raises(romulus.RomulusError, match="not readable without its App"):
            await unread.result()
        assert "4111" not in (tmp_path / "runs.db").read_bytes().decode("latin-1")


async def test_without_the_code_a_result_is_its_json(tmp_path: Path) -> None:
    app = app_at(tmp_path, [issues])
    async with working(app) as client, AsyncClient(app.source.url) as blind:
        await (await client.start(issues.options(id="r"), "ada")).result(timeout=30)

        assert await blind.get("r").result() == {"owner": "ada", "number": "4111-1111"}
        assert await blind.get("r", issues).result() == Card("ada", "4111-1111")


async def test_without_the_code_listings_show_nothing_of_a_value_with_marked_parts(tmp_path: Path) -> None:
    app = app_at(tmp_path, [issues, orders])
    async with working(app) as client, AsyncClient(app.source.url) as blind:
        for workflow in (issues, orders):
            handle = await client.start(workflow, "ada")
            assert await handle.result(timeout=30) == Card("ada", "4111-1111")

            unread = blind.get(handle.id)
            assert [entry.value for entry in await unread.history()] == ["[redacted]"]
            assert (await unread.describe()).result == "[redacted]"
            assert await unread.result() == {"owner": "ada", "number": "4111-1111"}
        (operation,) = await blind.operations()
        assert (await blind.operation(operation.id)).arguments == "[redacted]"
        assert (await client.operation(operation.id)).arguments == {"card": "[redacted]", "copies": 2}


async def test_marked_arguments_compare_equal_with_those_of_a_start_without_the_code(tmp_path: Path) -> None:
    app = app_at(tmp_path, [counts])
    async with working(app) as client, AsyncClient(app.source.url) as blind:
        handle = await client.start(counts.options(id="r"), "4111")
        again = await blind.start_by_name("counts", {"number": "4111"}, id="r")
        assert again.id == handle.id
        assert await again.result(timeout=30) == 4
