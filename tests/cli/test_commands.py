"""Commands: tables for people, JSON alone for programs, one paragraph and an exit code for each error."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

import romulus
from romulus import JournalEntry, RunDescription, RunStatus
from romulus.core.pools import PoolEnd, PoolReport
from tests.store.kit import LEASE, worker

from .terminal import romulus_here, romulus_process

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@romulus.step
async def double(number: int) -> int:
    return number * 2


@romulus.workflow
async def doubled(number: int) -> int:
    return await double(number)


@romulus.workflow
async def stuck() -> None:
    await asyncio.get_running_loop().create_future()


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    monkeypatch.setenv("ROMULUS_STORE", url)
    return url


def work(*runs: str) -> None:
    """Let a worker end or hold these runs."""
    app = romulus.App(workflows=[doubled, stuck])

    async def until_ended() -> None:
        async with app.worker(), app.client() as client:
            for run in runs:
                with pytest.raises(romulus.RunHeld) if run.startswith("stuck") else _nothing():
                    await client.get(run).result(timeout=30, raise_on_hold=True)

    asyncio.run(until_ended())


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...


def test_a_run_from_its_start_to_its_history() -> None:
    started = romulus_here("runs", "start", "doubled", '{"number": 12345678901234567890}', "--id", "d")
    assert (started.code, started.out) == (0, "d\n")
    assert "no live worker serves workflow 'doubled'" in started.err
    work("d")

    shown = romulus_here("runs", "show", "d", "--json")
    assert (shown.code, shown.err) == (0, "")
    assert shown.json.keys() == {field.name for field in dataclasses.fields(RunDescription)}
    assert (shown.json["status"], shown.json["result"], shown.json["pending"]) == ("succeeded", 24691357802469135780, [])
    assert RFC3339.fullmatch(shown.json["created_at"])

    history = romulus_here("runs", "history", "d", "--json")
    assert history.json.keys() == {"items", "next"}
    assert history.json["items"][0].keys() == {field.name for field in dataclasses.fields(JournalEntry)}
    assert history.json["items"][0]["value"] == 24691357802469135780
    table = romulus_here("runs", "history", "d").out
    assert "double" in table
    assert "24691357802469135780" in table


def test_lists_are_pages_whose_cursor_leads_on() -> None:
    for number in range(5):
        romulus_here("runs", "start", "doubled", json.dumps({"number": number}), "--id", f"r{number}")

    first = romulus_here("runs", "list", "--limit", "3", "--json")
    second = romulus_here("runs", "list", "--limit", "3", "--after", first.json["next"], "--json")
    assert [run["id"] for run in first.json["items"] + second.json["items"]] == [f"r{number}" for number in range(5)]
    assert second.json["next"] is None
    assert f"--after {first.json['next']}" in romulus_here("runs", "list", "--limit", "3").err
    assert romulus_here("runs", "list", "--status", "held", "--json").json == {"items": [], "next": None}
    assert romulus_here("runs", "list", "--status", "held").err == "no runs\n"


def test_watching_prints_json_lines_and_tells_by_its_exit_code_how_the_run_ended() -> None:
    romulus_here("runs", "start", "doubled", '{"number": 1}', "--id", "d")
    work("d")
    watched = romulus_here("runs", "watch", "d", "--json")
    assert watched.code == 0
    assert [json.loads(line)["status"] for line in watched.out.splitlines()] == ["succeeded"]

    romulus_here("runs", "start", "doubled", '{"number": 1}', "--id", "c")
    assert romulus_here("runs", "cancel", "c").out == "accepted\n"
    assert romulus_here("runs", "watch", "c").code == 1


def test_what_people_may_ask_of_runs() -> None:
    romulus_here("runs", "start", "stuck", "--id", "stuck-1")
    work("stuck-1")
    assert "held because" in romulus_here("runs", "show", "stuck-1").out

    released = romulus_here("runs", "release", "stuck-1", "--json")
    assert (released.code, released.json["status"]) == (0, "pending")
    terminated = romulus_here("runs", "terminate", "stuck-1", "--reason", "enough", "--json")
    assert (terminated.json["status"], terminated.json["cancel_reason"]) == ("terminated", "enough")
    assert romulus_here("runs", "retry", "stuck-1", "--json").json["generation"] == 2
    forked = romulus_here("runs", "fork", "stuck-1", "0")
    assert (forked.code, forked.out) == (0, "stuck-1~1\n")


def test_events_are_sent_once_and_listed() -> None:
    arguments = ("events", "send", "packed", '{"n": [1, 2.5, null]}', "--correlation-id", "42", "--event-id", "e")
    assert romulus_here(*arguments, "--json").json == {"id": "e", "duplicate": False}
    assert romulus_here(*arguments).out == "e (was stored before)\n"
    (event,) = romulus_here("events", "list", "--unmatched", "--json").json["items"]
    assert (event["name"], event["payload"], event["state"]) == ("packed", {"n": [1, 2.5, None]}, "unmatched")
    assert romulus_here("events", "list", "--matched", "--json").json["items"] == []


ERRORS = [
    (3, ("runs", "show", "nobody"), "no run 'nobody'"),
    (3, ("runs", "cancel", "nobody"), "no run 'nobody'"),
    (4, ("runs", "start", "doubled", '{"number": 2}', "--id", "d"), "with other arguments"),
    (4, ("runs", "start", "stuck", "--id", "d"), "as workflow 'doubled'"),
    (4, ("runs", "release", "d"), "cannot be released"),
    (4, ("events", "send", "e", "2", "--correlation-id", "c", "--event-id", "e"), "already used"),
    (2, ("events", "send", "romulus.x", "--correlation-id", "c"), "reserved"),
    (2, ("events", "send", "e", "{", "--correlation-id", "c"), "as JSON"),
    (2, ("events", "send", "e", "NaN", "--correlation-id", "c"), "as JSON"),
    (2, ("events", "send", "e", "[-1e999]", "--correlation-id", "c"), "beyond what a float can hold"),
    (2, ("events", "send", "e", "[" * 20_000, "--correlation-id", "c"), "nested too deep"),
    (2, ("events", "send", "e"), "--correlation-id"),
    (2, ("runs", "start", "doubled", "[1]"), "JSON object"),
    (2, ("runs", "list", "--limit", "0"), "limit is 0"),
    (2, ("runs", "list", "--since", "soon"), "--since"),
    (2, ("runs", "list", "--attribute", "x"), "NAME=VALUE"),
    (2, ("runs", "list", "--after", "nonsense"), "cursor"),
    (2, ("runs", "list", "--status", "asleep"), "--status"),
    (2, ("runs", "list", "--store", "mysql://x"), "not a store URL"),
    (2, ("runs", "fork", "d", "7"), "can be forked at 0 to 0"),
    (2, ("runs", "fork", "d", "x"), "position"),
    (2, ("runs", "bogus"), "bogus"),
    (1, ("runs", "list", "--store", "sqlite:////proc/nothing/x.db"), "/proc/nothing"),
]


@pytest.mark.parametrize(("code", "arguments", "said"), ERRORS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
@pytest.mark.parametrize("as_json", [False, True])
def test_each_error_is_said_on_stderr_only_with_its_exit_code(code: int, arguments: tuple[str, ...], said: str, as_json: bool) -> None:
    romulus_here("runs", "start", "doubled", '{"number": 1}', "--id", "d")
    romulus_here("events", "send", "e", "1", "--correlation-id", "c", "--event-id", "e")

    answer = romulus_here(*arguments, *(["--json"] if as_json else []))

    assert (answer.code, answer.out) == (code, ""), answer
    assert said in answer.err
    assert "Traceback" not in answer.err
    if "Usage" not in answer.err:
        assert len(answer.err.splitlines()) == 1


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    other.write_bytes(b"not a database, much longer than its header would be" * 40)
    before = other.read_bytes()

    for command in (("runs", "list"), ("migrate",), ("migrate", "--check"), ("doctor",)):
        answer = romulus_here(*command, "--store", f"sqlite:///{other}")
        assert answer.code == 1, answer
        assert "other.db" in answer.err + answer.out
    assert other.read_bytes() == before


def test_migrate_says_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    wanted = romulus_here("migrate", "--check")
    assert (wanted.code, "does not exist yet" in wanted.out) == (1, True)
    assert not (tmp_path / "runs.db").exists()

    assert romulus_here("migrate").code == 0

    assert romulus_here("migrate", "--check", "--json").json["after"].endswith("is up to date")


def test_doctor_shows_settings_and_findings_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = romulus_here("doctor", "--json")
    assert report.code == 0
    assert {finding["check"]: finding["state"] for finding in report.json["findings"]}["store"] == "note"
    assert not (tmp_path / "runs.db").exists()

    romulus_here("migrate")
    monkeypatch.setenv("ROMULUS_LEASE", "1")
    report = romulus_here("doctor", "--json")
    assert report.code == 1
    assert {f["check"]: f["state"] for f in report.json["findings"]} | {"event loop": ""} == {
        "python": "ok", "event loop": "", "settings": "failed", "store": "ok", "assurance": "ok", "disk": "ok", "workers": "note",
        "pools": "ok", "held operations": "ok", "operations": "ok", "held runs": "ok", "stranded runs": "ok",
    }  # fmt: skip


def test_doctor_and_the_listing_tell_what_goes_on_only_if_somebody_does_something() -> None:
    romulus_here("runs", "start", "stuck", "--id", "stuck-1")
    work("stuck-1")
    romulus_here("runs", "start", "nobody", "--id", "n")

    findings = {finding["check"]: finding for finding in romulus_here("doctor", "--json").json["findings"]}
    assert (findings["held runs"]["state"], findings["stranded runs"]["state"]) == ("note", "note")
    assert findings["held runs"]["detail"] == "1 waiting for a person: romulus runs list --status held says why"
    assert findings["stranded runs"]["detail"] == "1 waiting for a worker that serves nobody 1"
    listed = romulus_here("runs", "list").out.splitlines()
    assert [line.split()[3] for line in listed[1:]] == ["held", "pending"]
    assert "nothing can wake this run" in listed[1]
    assert listed[2].rstrip().endswith("no live worker serves this workflow and version")


@romulus.step(pool="gpu")
async def trained(number: int) -> int:
    return number


@romulus.workflow
async def training(number: int) -> int:
    return await trained(number)


def test_doctor_names_pools_that_no_live_worker_serves_or_whose_attempts_it_cannot_read(store: str) -> None:
    romulus_here("runs", "start", "training", '{"number": 1}', "--id", "t")
    app = romulus.App(workflows=[training])

    async def pools() -> str:
        said = await asyncio.to_thread(romulus_process, "doctor", "--json", cwd=Path(store.removeprefix("sqlite:///")).parent)
        return next(finding["detail"] for finding in said.json["findings"] if finding["check"] == "pools")

    async def seen() -> tuple[str, str, str]:
        """While the attempt waits: without a worker that serves its pool, with one, and with one that could not read it."""
        async with app.worker(pools=["default"]), app.client() as client:
            while (await client.get("t").describe()).status is not RunStatus.WAITING:
                await asyncio.sleep(0.01)
            opened, before = await app.source.acquire(), await pools()
            (await opened.store.register(worker(opened.host, "g1", pools='["gpu"]'), LEASE)).close()
            after = await pools()
            (row,) = (await opened.store.take_pool("g1", "default", ["gpu"], ["trained"], 1, LEASE)).rows
            await opened.store.report_pool([PoolReport(row.key, row.fence, row.run, "g1", PoolEnd.UNREAD, b"", "{}")])
            other = await pools()
            await app.source.release()
            return before, after, other

    unserved, served, unread = asyncio.run(seen())
    assert unserved == "attempts wait for a worker that serves their pool: 1 in 'gpu'"
    assert served == "a live worker serves each in which attempts wait"
    assert unread == "attempts wait for a worker whose code and codec can read them: 1 in 'gpu' (romulus runs show t)"


def test_text_from_outside_cannot_move_the_cursor_or_turn_round(tmp_path: Path) -> None:
    nasty = "a\x1b[31m\u202eb\u200b\r\nc[red]"
    sent = romulus_here("events", "send", "e", json.dumps(nasty), "--correlation-id", nasty)
    assert sent.code == 0, sent

    listed = romulus_here("events", "list")
    assert r"a\x1b[31m\u202eb\u200b\r\nc[red]" in listed.out
    assert all(char.isprintable() or char == "\n" for char in listed.out)
    assert romulus_here("events", "list", "--json").json["items"][0]["payload"] == nasty


def test_statuses_can_be_listed_by_name() -> None:
    for status in RunStatus:
        assert romulus_here("runs", "list", "--status", status.value).code == 0


def test_the_version_can_be_asked_for() -> None:
    asked = romulus_here("--version")

    assert (asked.code, asked.out.strip()) == (0, version("romulus-engine"))
