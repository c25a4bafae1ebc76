"""Values: the same live and after a replay in another process, or refused at once by type; never None, never a bare dict."""

from __future__ import annotations

import json

import pytest

import romulus
from tests.cases.apps.values import KINDS, MAKERS, described, keeps, nul, refused
from tests.processes.stage import Stage

pytestmark = pytest.mark.process
APP = "tests.cases.apps.values:app"


async def test_the_live_value_equals_the_replayed_one_in_value_and_type(stage: Stage) -> None:
    """RB-22, RB-18 (a) and (b): under another hash seed in another process."""
    first = await stage.worker(APP, PYTHONHASHSEED="1")
    handles = {kind: await stage.client.start(keeps.options(id=kind), kind) for kind in KINDS}
    for kind in KINDS:
        await stage.status(kind, "waiting")
    first.kill()
    await stage.worker(APP, PYTHONHASHSEED="2")
    await stage.client.send_event("go", True, correlation_id="all")
    replayed = {kind: await handle.result(timeout=30) for kind, handle in handles.items()}

    assert {e["run"]: e["value"] for e in stage.effects("seen")} == replayed
    made = {kind: described(await MAKERS[kind]()) for kind in KINDS if kind != "zoned"}
    assert {kind: value for kind, value in replayed.items() if kind != "zoned"} == made
    assert "datetime.datetime(2026, 10, 25, 2, 30" in replayed["zoned"]
    assert "3600" in replayed["zoned"]  # fold=1: the second 02:30, at +01:00; the zone has become its offset, as API.md says
    stage.whole()


@pytest.mark.parametrize(("kind", "type_name"), [("opaque", "Opaque"), ("listed", "list")])
async def test_what_would_come_back_as_something_else_is_refused_on_the_first_pass_by_its_type(
    stage: Stage, kind: str, type_name: str
) -> None:
    """RB-22: the step is not tried again for it."""
    await stage.worker(APP)
    handle = await stage.client.start(refused, kind)
    message = await handle.result(timeout=30)
    assert type_name in message
    assert kind in message
    assert len(stage.effects("begin")) == 1


async def test_a_nul_character_makes_the_round_trip_everywhere(stage: Stage) -> None:
    """RB-20: result, key, the six characters that look like it, error, event; over a crash; each body once."""
    first = await stage.worker(APP)
    handle = await stage.client.start(nul.options(id="r"), True)
    failing = await stage.client.start(nul.options(id="failing"), False)
    with pytest.raises(romulus.RunFailed) as failed:
        await failing.result(timeout=30)
    assert "thing" in str(failed.value.__cause__)
    await stage.status("r", "waiting")
    first.kill()
    await stage.client.send_event("nul", "e\x00", correlation_id="r")
    await stage.worker(APP)

    assert await handle.result(timeout=30) == ("a\x00b", {"k\x00": 1}, r"\u0000", r"no\x00thing", "e\x00")  # the message escaped
    assert [e["attempt"] for e in stage.effects("begin", run="r")] == [1] * 4
    shown = stage.cli("runs", "history", "r", "--json"), stage.cli("runs", "list"), stage.cli("events", "list", "--json")
    assert [await stage.exited(process) for process in shown] == [0, 0, 0]
    assert json.loads(shown[0].out)["items"][0]["value"] == "a\x00b"
    assert json.loads(shown[2].out)["items"][0]["payload"] == "e\x00"
    assert "\x00" not in shown[1].out


ADDRESSES = """
import romulus
from dataclasses import dataclass
from tests.processes.effects import note

@dataclass
class Address:
    street: str

@romulus.step
async def find() -> Address:
    note("find")
    return Address("Via Sacra")

@romulus.workflow
async def posts() -> str:
    address = await find()
    await romulus.wait_for_event("go", type=bool)
    return f"{type(address).__name__} {address.street}"

app = romulus.App(workflows=[posts])
"""


async def test_a_value_whose_class_changed_holds_the_run_by_type_until_the_class_is_back(stage: Stage) -> None:
    """RB-18 (c): renamed together with its field, so that the stored bytes do not fit.

    Renamed alone it comes back as the class the code names: stored bytes name no class, and the fields are all there.
    """
    stage.deploy("post", ADDRESSES)
    first = await stage.worker("post:app")
    handle = await stage.client.start_by_name("posts", id="r")
    renamed = await stage.client.start_by_name("posts", id="renamed")
    await stage.status("r", "waiting")
    await stage.status("renamed", "waiting")
    await stage.stop(first)

    stage.deploy("post", ADDRESSES.replace("Address", "Location").replace("street", "road"))
    other = await stage.worker("post:app")
    await handle.send_event("go", True)
    held = await stage.status("r", "held")
    assert "Location" in (held.hold_reason or "")
    await stage.stop(other)

    stage.deploy("post", ADDRESSES)
    last = await stage.worker("post:app")
    assert await handle.result(timeout=30) == "Address Via Sacra"
    await stage.stop(last)
    stage.deploy("post", ADDRESSES.replace("Address", "Location"))
    await stage.worker("post:app")
    await renamed.send_event("go", True)
    assert await renamed.result(timeout=30) == "Location Via Sacra"
    assert len(stage.effects("find")) == 2
    stage.whole()
