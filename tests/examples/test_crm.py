"""The example provider, misbehaving in every way: one effect for one operation, and the run comes to its end or says why not."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import romulus
from examples.crm import updates
from examples.crm.provider import Provider, serve
from romulus.core.machine import RunStatus
from tests.worker.rig import World, eventually, world


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    server, provider = serve(str(tmp_path / "crm.db"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("CRM_URL", f"http://127.0.0.1:{server.server_address[1]}")
    yield provider
    server.shutdown()
    thread.join()
    server.server_close()


async def upgraded(here: World) -> str:
    await here.worker()
    handle = await here.client.start(updates.upgrade.options(id="u"), "ada", "pro")
    return await handle.result(timeout=30)


def crm_world(tmp_path: Path) -> Any:
    return world(tmp_path, updates.upgrade, resources=[updates.crm])


async def test_an_answer_is_recorded(tmp_path: Path, provider: Provider) -> None:
    async with crm_world(tmp_path) as here:
        assert await upgraded(here) == "ada has pro"
        assert list(provider.effects().values()) == [1]


async def test_an_answer_lost_after_the_write_is_looked_up(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_answers": 1, "honours_keys": False})
    async with crm_world(tmp_path) as here:
        assert await upgraded(here) == "ada has pro"
        assert list(provider.effects().values()) == [1]


async def test_a_rejection_is_raised_in_the_workflow(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"reject": 1})
    async with crm_world(tmp_path) as here:
        with pytest.raises(romulus.RunFailed, match="OperationRejected"):
            await upgraded(here)
        assert provider.effects() == {}


async def test_a_write_applied_after_the_first_lookup_is_found_by_a_later_one(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"apply_later_s": 0.4, "honours_keys": False})
    async with crm_world(tmp_path) as here:
        assert await upgraded(here) == "ada has pro"
        assert list(provider.effects().values()) == [1]


async def test_a_write_that_shows_late_is_waited_for(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_answers": 1, "show_after_s": 0.3, "honours_keys": False})
    async with crm_world(tmp_path) as here:
        assert await upgraded(here) == "ada has pro"
        assert list(provider.effects().values()) == [1]


async def test_a_worker_killed_in_the_middle_leaves_one_effect(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_answers": 1, "delay_s": 0.2, "honours_keys": False})
    async with crm_world(tmp_path) as here:
        first = await here.worker()
        handle = await here.client.start(updates.upgrade.options(id="u"), "ada", "pro")
        await eventually(lambda: len(provider.effects()) == 1)
        await here.kill(first)
        await here.worker()
        assert await handle.result(timeout=30) == "ada has pro"
        assert list(provider.effects().values()) == [1]


async def test_a_provider_that_is_not_there_is_never_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_URL", "http://127.0.0.1:9")
    async with crm_world(tmp_path) as here:
        with pytest.raises(romulus.RunFailed, match="NotSent"):
            await upgraded(here)
        assert (await here.client.operations())[0].state == "not sent"


def test_the_behaviour_can_be_changed_over_http(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    request = urllib.request.Request(f"{os.environ['CRM_URL']}/behaviour", json.dumps({"reject": 3}).encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    assert provider.behaviour.reject == 3


# ---- signed callbacks -----------------------------------------------------------------------------------

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    from datetime import UTC, datetime

    from standardwebhooks.webhooks import Webhook

    now = datetime.now(UTC)
    signature = Webhook(secret).sign("msg_1", now, body.decode())
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(int(now.timestamp())), "Webhook-Signature": signature}


async def unknown(here: World) -> str:
    """Return the ID of an operation that is unknown, its provider away."""
    await here.worker(settling_max=0)
    await here.client.start(updates.upgrade.options(id="u"), "ada", "pro")
    await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'unknown'") != [])
    return (await here.client.operations())[0].id


async def test_a_signed_callback_settles_an_operation_whose_answer_was_lost(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_requests": 1})
    async with crm_world(tmp_path) as here:
        body = json.dumps({"key": await unknown(here), "id": "1", "customer": "ada", "plan": "pro"}).encode()
        with pytest.raises(romulus.CallbackRefused):
            await here.client.receive_callback("crm", signed(body, "whsec_" + "A" * 32), body, secret=SECRET)
        with pytest.raises(romulus.CallbackRefused):
            await here.client.receive_callback("crm", signed(body), body + b" ", secret=SECRET)
        with pytest.raises(romulus.DefinitionError, match="no operation has a callback"):
            await here.client.receive_callback("erp", signed(body), body, secret=SECRET)
        settled = await here.client.receive_callback("crm", signed(body), body, secret=SECRET)
        assert settled.state == "confirmed"
        assert await here.client.get("u", updates.upgrade).result(timeout=20) == "ada has pro"
        kept = (await here.client.operation(settled.id)).history[-1]
        assert (kept.kind, kept.who) == ("callback: applied", "source crm")


async def test_a_callback_about_no_operation_of_this_namespace_is_refused(tmp_path: Path, provider: Provider) -> None:
    body = json.dumps({"key": "nothing", "id": "1", "customer": "ada", "plan": "pro"}).encode()
    async with crm_world(tmp_path) as here:
        with pytest.raises(romulus.OperationNotFound):
            await here.client.receive_callback("crm", signed(body), body, secret=SECRET)


async def test_a_run_in_review_is_shown_as_held(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_answers": 1, "show_after_s": 1e6, "honours_keys": False})
    async with crm_world(tmp_path) as here:
        worker = await here.worker()
        await here.client.start(updates.upgrade.options(id="u"), "ada", "pro")
        await eventually(lambda: here.rows("SELECT 1 FROM operations WHERE state = 'unknown'") != [])
        assert (await here.client.get("u").describe()).status in (RunStatus.WAITING, RunStatus.RUNNING)
        assert worker in here.workers


async def test_what_went_over_the_wire_is_kept_in_the_history_without_secrets(tmp_path: Path, provider: Provider) -> None:
    provider.behave({"drop_answers": 1})
    async with crm_world(tmp_path) as here:
        assert await upgraded(here) == "ada has pro"
        await eventually(lambda: here.rows("SELECT 1 FROM operation_notes WHERE kind = 'exchange'") != [])
        (operation,) = await here.client.operations()
        (kept,) = [line for line in (await here.client.operation(operation.id)).history if line.kind == "exchange"]
        (sent,) = kept.detail["exchanges"]
        assert sent["sent"].endswith("/plans")
        assert sent["headers"]["idempotency-key"] == operation.id
