"""What the scan refuses, what it lets pass, and what it reaches."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import romulus
from romulus.authoring.scan import Reached, reach
from tests.authoring import scan_world as world

REFUSED = {
    "time.sleep": [name for name in vars(world) if name.startswith("calls_sleep")],
    "time.time": [name for name in vars(world) if name.startswith("calls_clock")],
    "datetime.now": ["calls_now", "calls_now_through_the_module", "calls_now_and_goes_on"],
    "datetime.utcnow": ["calls_utcnow"],
    "date.today": ["calls_today"],
    "random.random": ["calls_random", "calls_a_global_generator"],
    "random.shuffle": ["calls_shuffle"],
    "random.Random": ["calls_random_unseeded"],
    "uuid.uuid4": ["calls_uuid4"],
    "os.urandom": ["calls_urandom"],
    "open": ["calls_open"],
    "input": ["calls_input"],
    "socket.socket": ["calls_socket"],
    "subprocess.run": ["calls_run"],
    "subprocess.Popen": ["calls_popen_class"],
    "threading.Thread": ["calls_thread", "calls_own_thread_class"],
    "asyncio.to_thread": ["calls_to_thread"],
    "requests.get": ["calls_requests_not_loaded"],
    "os.system": ["calls_system"],
}
FINE = [
    "asks_only_for_what_is_the_runs_own",
    "mentions_without_calling",
    "draws_from_a_seed",
    "makes_times_from_values",
    "rebinds_a_local",
    "has_a_class_that_reads_in_a_step",
    "reaches_everything",
]


def reached(fn: Callable[..., Any]) -> Reached:
    """Return what the scan says of a workflow made of *fn*."""
    return reach(romulus.workflow(fn).spec)


@pytest.mark.parametrize(("name", "call"), [(name, call) for call, names in REFUSED.items() for name in names])
def test_a_call_that_a_replay_cannot_repeat_is_refused_by_name(name: str, call: str) -> None:
    refusals = reached(getattr(world, name)).refusals

    assert [each.call for each in refusals] == [call]
    assert refusals[0].remedy.startswith(("use ", "put it in a", "wait for"))


def test_every_bad_function_of_the_world_is_tried() -> None:
    tried = {name for names in REFUSED.values() for name in names}

    assert {name for name in vars(world) if name.startswith("calls_")} == tried


@pytest.mark.parametrize("name", FINE)
def test_what_a_replay_can_repeat_is_not_refused(name: str) -> None:
    assert reached(getattr(world, name)).refusals == []


def test_a_refusal_names_the_function_the_line_and_the_remedy() -> None:
    (refusal,) = reached(world.calls_sleep_below).refusals

    line = world.sleeps_deep_down.__code__.co_firstlineno + 1
    assert str(refusal) == f"tests.authoring.scan_world.sleeps_deep_down (scan_world.py:{line}) calls time.sleep: {refusal.remedy}"
    assert "asyncio.sleep" in refusal.remedy


def test_each_refused_call_is_listed() -> None:
    async def bad() -> None:
        world.time.sleep(1)
        world.time.time()
        world.time.sleep(2)

    assert [each.call for each in reached(bad).refusals] == ["time.sleep", "time.time", "time.sleep"]


def test_steps_and_workflows_are_found_through_globals_closures_methods_and_containers() -> None:
    found = reached(world.reaches_everything)

    assert {each.spec.name for each in found.steps} == {"charge", "pack", "rare"}
    assert [each.spec.name for each in found.workflows] == ["child"]


def test_a_step_bound_by_a_closure_is_found() -> None:
    step = world.charge

    async def flow(order: str) -> str:
        return await step(order)

    assert reached(flow).steps == [world.charge]


def test_a_workflow_of_def_is_scanned_alike() -> None:
    def flow(order: str) -> bool:
        world.time.sleep(1)
        return world.pack(order)

    found = reached(flow)

    assert [each.call for each in found.refusals] == ["time.sleep"]
    assert found.steps == [world.pack]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that writes modules and imports the first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(**modules: str) -> Any:
        for name, code in modules.items():
            path = tmp_path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(code))
        importlib.invalidate_caches()
        return importlib.import_module(next(iter(modules)).replace("__", "."))

    yield write  # type: ignore[misc]
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_functions_of_the_package_are_followed_and_those_of_other_packages_are_not(package: Callable[..., Any]) -> None:
    flows = package(
        shop__flows="from shop import tools\nimport vendor\nasync def flow():\n    tools.bad()\n    vendor.bad()\n",
        shop____init__="",
        shop__tools="import time\ndef bad():\n    time.sleep(1)\n",
        vendor="import os\ndef bad():\n    os.urandom(1)\n",
    )

    assert [each.function for each in reached(flows.flow).refusals] == ["shop.tools.bad"]


def test_a_single_module_is_its_own_package(package: Callable[..., Any]) -> None:
    flows = package(
        alone="import other\nimport time\nasync def flow():\n    other.bad()\n    near()\ndef near():\n    time.time()\n",
        other="import time\ndef bad():\n    time.sleep(1)\n",
    )

    assert [each.function for each in reached(flows.flow).refusals] == ["alone.near"]


def test_a_users_own_function_named_open_is_no_refusal(package: Callable[..., Any]) -> None:
    flows = package(own="def open(x):\n    return x\nasync def flow():\n    open('x')\n    from own import open as again\n    again('y')\n")

    assert reached(flows.flow).refusals == []


def test_steps_of_a_module_imported_inside_a_function_are_found(package: Callable[..., Any]) -> None:
    flows = package(
        store__flows="""
        async def flow():
            from .steps import charge
            from . import steps as s
            await charge()
            await s.pack()
        """,
        store____init__="",
        store__steps="import romulus\n@romulus.step\nasync def charge(): ...\n@romulus.step\nasync def pack(): ...\n",
    )
    importlib.import_module("store.steps")

    assert [each.spec.name for each in reached(flows.flow).steps] == ["charge", "pack"]


def test_an_object_that_fails_when_looked_at_does_not_break_the_scan(package: Callable[..., Any]) -> None:
    flows = package(
        odd="""
        class Odd:
            __hash__ = None
            @property
            def spec(self): raise RuntimeError
            def __getattr__(self, name): raise RuntimeError
            def __eq__(self, other): raise RuntimeError
        odd = Odd()
        class Meta(type):
            def __getattr__(cls, name): raise RuntimeError
        class Strange(metaclass=Meta): ...
        async def flow():
            odd.method()
            odd()
            Strange.method()
            return missing_name, odd.spec
        """
    )

    assert reached(flows.flow).refusals == []
