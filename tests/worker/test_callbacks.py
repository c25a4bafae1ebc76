"""Signed callbacks of providers: verified, bound to an operation in code and to a namespace, kept as evidence, never a cause to send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

import romulus
from romulus import Applied, Callback, NotApplied, Operation, Unknown
from tests.worker.rig import World, eventually, url_of, world

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SENDS: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENDS.clear()


@romulus.operation(timeout=5)
async def pay(op: Operation) -> int:
    SENDS.append(op.id)
    raise ConnectionError("no answer")


@pay.callback(source="bank")
def of_bank(body: Mapping[str, Any]) -> Callback[int]:
    seven: Any = 7
    outcomes: dict[str, Any] = {
        "paid": Applied(body.get("amount")),
        "failed": NotApplied(),
        "pending": Unknown("pending"),
        "long": Unknown("x" * 3_000),
        "odd": Unknown(seven),
        "none": None,
    }
    return Callback(body["reference"], outcomes[body["status"]])


@romulus.operation(timeout=5)
async def mail(op: Operation) -> None:
    SENDS.append(op.id)
    raise ConnectionError("no answer")


@mail.callback(source="post")
def of_post(body: Mapping[str, Any]) -> Any:
    return Callback(body["reference"], Applied(None)) if body.get("reference") else "no callback"


@romulus.workflow
async def pays() -> int:
    return await pay()


@romulus.workflow
async def mails() -> None:
    await mail()


def message(reference: str, status: str = "paid", amount: Any = 7) -> bytes:
    return json.dumps({"reference": reference, "status": status, "amount": amount}).encode()


def signed(body: bytes, *, secret: str = SECRET, age: timedelta = timedelta(0), message_id: str = "msg_1") -> dict[str, str]:
    at = datetime.now(UTC) - age
    return {
        "Webhook-Id": message_id, "Webhook-Timestamp": str(int(at.timestamp())), "Webhook-Signature": Webhook(secret).sign(
            message_id, at, body.decode()
        ),
    }  # fmt: skip


async def unknown(here: World, flow: Any = pays) -> str:
    """Return the ID of an operation that nobody settles."""
    if not here.workers:
        await here.worker(settling_max=0)
    await here.client.start(flow.options(id=flow.__name__))
    await eventually(lambda: here.rows("SELECT 1 FROM operations o JOIN runs r ON r.key = o.run WHERE r.id = ?", flow.__name__) != [])
    await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'armed'") == [])
    return next(each.id for each in await here.client.operations() if each.run_id == flow.__name__)


async def receive(here: World, body: bytes, headers: Mapping[str, str] | None = None, source: str = "bank", secret: str = SECRET) -> Any:
    return await here.client.receive_callback(source, signed(body) if headers is None else headers, body, secret=secret)


async def states(here: World) -> list[str]:
    return [each.state for each in await here.client.operations()]


async def test_what_is_not_signed_well_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        body = message(await unknown(here))
        good = signed(body)
        bad: list[tuple[dict[str, str], bytes]] = [
            (signed(body, secret="whsec_" + "A" * 32), body),
            (good, body + b" "),
            (good | {"Webhook-Id": "msg_2"}, body),
            (good | {"Webhook-Timestamp": str(int(good["Webhook-Timestamp"]) + 1)}, body),
            (good | {"Webhook-Signature": "v1,AAAA"}, body),
            (good | {"Webhook-Timestamp": "soon"}, body),
            ({name: value for name, value in good.items() if name != "Webhook-Signature"}, body),
            ({}, body),
        ]
        for headers, given in bad:
            with pytest.raises(romulus.CallbackRefused):
                await receive(here, given, headers)
        assert await states(here) == ["unknown"]
        assert here.rows("SELECT kind FROM operation_notes") == [("no answer",)]


@pytest.mark.parametrize("minutes", [-6, 6])
async def test_a_message_whose_clock_is_more_than_five_minutes_off_is_refused(tmp_path: Path, minutes: int) -> None:
    async with world(tmp_path, pays, mails) as here:
        body = message(await unknown(here))
        with pytest.raises(romulus.CallbackRefused):
            await receive(here, body, signed(body, age=timedelta(minutes=minutes)))
        settled = await receive(here, body, signed(body, age=timedelta(minutes=minutes * 4 / 6)))
        assert settled.state == "confirmed"


async def test_a_replayed_message_changes_nothing_more(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        body = message(await unknown(here))
        headers = signed(body)
        assert [(await receive(here, body, headers)).state for _ in range(3)] == ["confirmed"] * 3
        assert await here.client.get("pays", pays).result(timeout=20) == 7
        assert here.rows("SELECT count(*) FROM journal WHERE kind = 'operation'") == [(1,)]


async def test_a_callback_that_says_not_applied_or_nothing_is_kept_and_causes_no_send(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here)
        for status in ("failed", "pending"):
            assert (await receive(here, message(reference, status))).state == "unknown"
        assert [reference] == SENDS
        kinds = [line.kind for line in (await here.client.operation(reference)).history]
        assert kinds == ["no answer", "callback: not applied", "callback: unknown"]


@pytest.mark.parametrize(("status", "kept"), [("pending", "pending"), ("long", "x" * 2_000), ("odd", "(a reason of type int)")])
async def test_why_a_callback_cannot_tell_is_kept_whatever_it_is(tmp_path: Path, status: str, kept: str) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here)
        await receive(here, message(reference, status))
        assert (await here.client.operation(reference)).history[-1].detail == {"reason": kept}


async def test_a_callback_that_says_none_of_the_three_is_refused_by_what_it_says(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here)
        with pytest.raises(romulus.DefinitionError, match="the callback of operation 'pay' says NoneType; a romulus.Callback says Applied"):
            await receive(here, message(reference, "none"))


async def test_a_result_of_the_wrong_type_is_kept_and_settles_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here)
        assert (await receive(here, message(reference, amount="seven"))).state == "unknown"
        line = (await here.client.operation(reference)).history[-1]
        assert (line.kind, line.detail["applied"]) == ("callback: unknown", True)


async def test_a_contradicting_callback_after_the_settlement_is_flagged(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here)
        await receive(here, message(reference))
        assert (await receive(here, message(reference, "failed"))).state == "confirmed"
        assert (await here.client.operation(reference)).history[-1].kind == "conflict callback: not applied"


async def test_a_source_speaks_only_for_the_operations_that_are_bound_to_it(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        reference = await unknown(here, mails)
        with pytest.raises(romulus.OperationConflict, match="source 'bank' does not speak for it"):
            await receive(here, message(reference))
        with pytest.raises(romulus.DefinitionError, match="no operation has a callback for source 'shop'"):
            await receive(here, message(reference), source="shop")
        assert (await receive(here, message(reference), source="post")).state == "confirmed"


async def test_a_callback_reaches_no_operation_of_another_namespace(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        body = message(await unknown(here))
        other = romulus.App(url_of(here.path), workflows=[pays, mails], namespace="other")
        async with romulus.AsyncClient(other) as client:
            with pytest.raises(romulus.OperationNotFound):
                await client.receive_callback("bank", signed(body), body, secret=SECRET)
        assert await states(here) == ["unknown"]


async def test_what_is_no_message_is_refused_by_what_is_wrong_with_it(tmp_path: Path) -> None:
    async with world(tmp_path, pays, mails) as here:
        with pytest.raises(romulus.CallbackRefused, match="a list, not a JSON object"):
            await receive(here, b"[1]")
        with pytest.raises(romulus.CallbackRefused):
            await receive(here, b"no json")
        with pytest.raises(romulus.DefinitionError, match=r"returned str, not a romulus.Callback"):
            await receive(here, b"{}", source="post")
        with pytest.raises(romulus.ConfigurationError, match="no Standard Webhooks secret"):
            await receive(here, b"{}", {}, secret="")
        async with romulus.AsyncClient(url_of(here.path)) as client:
            with pytest.raises(romulus.ConfigurationError, match="needs the code"):
                await client.receive_callback("bank", {}, b"{}", secret=SECRET)
