"""Runs one seed from beginning to end and says what came of it."""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from romulus.store.sqlite import connection as sqlite_connection

from .judge import Judge
from .ledger import activated
from .loop import Over, Stuck
from .process import SimCrash
from .scenario import Scenario, draw_rates
from .world import World

MEMORY_DIR = Path("/dev/shm")  # noqa: S108 - where flushes cost nothing; a temporary directory elsewhere
TAIL = 60  # lines of the trace in a report


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a seed."""

    name: str
    broken: list[str]
    digest: str
    lines: list[str]
    points: int
    steps: int
    virtual: int  # µs

    @property
    def ok(self) -> bool:
        """Return whether every promise held."""
        return not self.broken

    def report(self, lines: int = TAIL) -> str:
        """Return what broke, and the trace before it."""
        trace = ["trace:", *self.lines[-lines:]] if lines else []
        return "\n".join([f"{self.name} broke:", *(f"  {each}" for each in self.broken), *trace])


def run_seed(seed: int) -> Verdict:
    """Run a random scenario; the same seed always runs the same."""
    return run_world(f"seed {seed}", seed, _scenario)


async def _scenario(world: World) -> None:
    world.rates = draw_rates(world.fork_random())
    scenario = Scenario(world)
    await scenario.run()
    if not world.broken:
        Judge(scenario).judge()


def run_world(name: str, seed: int, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> Verdict:
    """Run *scenario* in a fresh world on a fresh database."""
    directory = Path(tempfile.mkdtemp(prefix="romulus-sim-", dir=MEMORY_DIR if MEMORY_DIR.is_dir() else None))
    try:
        return _run(name, World(seed, directory / "sim.db"), scenario)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(name: str, world: World, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> Verdict:
    with _alone(world), activated(world.ledger):
        try:
            world.loop.run_until_complete(_watched(world, scenario))
        except Over:
            pass
        except Stuck as error:
            world.fail(str(error))
        except Exception as error:  # noqa: BLE001 - any unplanned exception fails the seed
            world.fail("".join(traceback.format_exception(error)))
        _unretrieved(world)
        verdict = Verdict(
            name, list(world.broken), world.trace.digest, list(world.trace.lines), world.points, world.loop.steps, world.loop.now
        )
    _bury(world)
    return verdict


async def _watched(world: World, scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    task = world.loop.create_task(scenario(world))
    await task


def _unretrieved(world: World) -> None:
    """Fail for exceptions that ended a task of the engine and that nobody looked at."""
    for process in world.loop.processes:
        for task in process.tasks:
            if task.done() and task._log_traceback and "/" not in task.get_name():  # not a step's body
                error = task.exception()
                if error is not None and not isinstance(error, SimCrash):
                    world.fail(f"{process.name}: task {task.get_name()} ended with " + "".join(traceback.format_exception(error)))


@contextlib.contextmanager
def _alone(world: World) -> Generator[None, None, None]:
    """While the world runs: connections belong to processes, nothing waits for real, nothing is collected by chance."""
    patience, collecting = sqlite_connection.Patience.__call__, gc.isenabled()
    handler = _Errors(world)
    log = logging.getLogger("romulus")
    level, disabled = log.level, logging.root.manager.disable

    def opened(connection: apsw.Connection) -> None:
        world.loop.current.connections.append(connection)

    gc.disable()
    sqlite_connection.Patience.__call__ = lambda self, tries: False  # type: ignore[method-assign]
    apsw.connection_hooks.append(opened)
    log.addHandler(handler)
    log.setLevel(logging.WARNING)  # whatever the application or a test has set: what is logged is part of the trace
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        logging.disable(disabled)
        apsw.connection_hooks.remove(opened)
        sqlite_connection.Patience.__call__ = patience  # type: ignore[method-assign]
        if collecting:
            gc.enable()


class _Errors(logging.Handler):
    """An error that is logged fails the seed; warnings go into the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self._world.fail(f"logged: {record.getMessage()}")
        else:
            self._world.note(f"log: {record.getMessage()}")


def _bury(world: World) -> None:
    """End what is left of every process without a sound, so that nothing of it runs in another seed."""
    loop = world.loop
    for process in loop.processes:
        process.kill()
        process.alive = False
    if world.reader is not None:
        world.reader.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for worker in world.workers.values():
            for driver in worker.memory.drivers():
                driver.instance.close()
        for process in loop.processes:
            for task in process.tasks:
                _end(task)
            process.tasks.clear()
        loop._generators.clear()
        loop._timers.clear()
        loop.close()


def _end(task: Any) -> None:
    task._log_destroy_pending = False
    task._log_traceback = False
    if not task.done():
        with contextlib.suppress(BaseException):
            task.get_coro().close()
