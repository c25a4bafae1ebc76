"""One run as the second interpreter replays it, here in this one: what is compared, and what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from romulus.core.instance import RunInfo
from romulus.core.record import Entry, Kind
from romulus.core.seeds import Seeds
from romulus.worker.shadow.interpreter import Replays
from romulus.worker.shadow.shadowed import Shadowed
from romulus.worker.shadow.words import Asked, Committed, Forget, Lost, Past, Turn, Watch
from tests.worker import shadow_flows as flows

START = Turn(None)


def watch(workflow: str, arguments: bytes = b"{}") -> Watch:
    info = RunInfo("r", workflow, "1", datetime(2026, 1, 1, tzinfo=UTC), "default", 1)
    return Watch(1, info, arguments, Seeds.first("00" * 16).dump(), 0)


def shadowed(workflow: str, arguments: bytes = b"{}") -> Shadowed:
    return Shadowed(watch(workflow, arguments), flows.app.registry)


def recorded(position: int, name: str, *, digest: bytes = b"") -> Turn:
    return Turn(Entry(position, Kind.STEP, position + 1, name, 1, 0, False, b'"x"', digest, "", 1, 1))


def test_a_recorded_step_that_the_code_does_not_ask_for_is_found() -> None:
    run = shadowed("patient", b'{"n":1}')

    found = run.tell(Past(1, [START, recorded(0, "pack")]))

    assert found is not None
    assert "the code asked for step 'pack' (command 1) in the worker and for step 'slow' (command 1)" in found


def test_a_command_that_only_the_second_interpreter_asks_for_is_found() -> None:
    found = shadowed("patient", b'{"n":1}').tell(Committed(1, [START], [], ""))

    assert found is not None
    assert "asked for nothing in the worker and for step 'slow' (command 1) in a second interpreter" in found


def test_a_command_that_only_the_worker_asks_for_is_found() -> None:
    found = shadowed("returns").tell(Committed(1, [START], [Asked(1, "timer", "", b"")], ""))

    assert found is not None
    assert "asked for a timer (command 1) in the worker and for nothing in a second interpreter" in found


def test_code_that_ends_otherwise_is_found() -> None:
    found = shadowed("returns").tell(Committed(1, [START], [], "Failed"))

    assert found is not None
    assert "the code had raised in the worker and it had returned in a second interpreter" in found


def test_a_difference_is_told_once() -> None:
    run = shadowed("returns")

    assert run.tell(Committed(1, [START], [], "Failed")) is not None
    assert run.tell(Committed(1, [recorded(0, "pack")], [], "Failed")) is None


@pytest.mark.parametrize("workflow", ["no_such_workflow", "patient"])
def test_a_run_that_cannot_be_followed_is_given_up_and_the_others_go_on(workflow: str) -> None:
    answers: list[object] = []
    replays = Replays(flows.app.registry, answers.append)

    replays.hear(watch(workflow, b'{"n":1}'))
    replays.hear(Committed(1, [recorded(5, "slow")], [], ""))  # not started, and not its next entry
    replays.hear(Watch(2, watch("returns").info, b"{}", Seeds.first("00" * 16).dump(), 0))
    replays.hear(Committed(2, [START], [], "Returned"))
    replays.hear(Forget(2))

    assert [type(answer) for answer in answers] == ([Lost] if workflow == "patient" else [])  # code that is not here is told of otherwise
