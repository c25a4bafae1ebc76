"""A store and real worker processes on it, which are killed, frozen, thawed and stopped as operators and kernels do it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import romulus
from tests.postgres.inspection import Inspection
from tests.postgres.server import Database
from tests.processes.effects import DIRECTORY

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
LEASE_S = 2
FULL = bool(os.environ.get("CASES_FULL"))  # the lengths that CASES.md names, instead of what a small machine affords
QUICK = {"ROMULUS_LEASE": str(LEASE_S), "ROMULUS_POLL": "0.2", "ROMULUS_SWEEP": "0.5"}


BACKWARDS = """
    SELECT a.generation, a.position FROM journal a JOIN journal b ON b.generation = a.generation AND b.position = a.position + 1
    WHERE b.fence < a.fence OR b.at < a.at"""


class Process:
    """One process of its own group; what it says on stderr is in `log`, on stdout in `out`."""

    def __init__(self, name: str, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._paths = directory / f"{name}.out", directory / f"{name}.log"
        with self._paths[0].open("wb") as out, self._paths[1].open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out(self) -> str:
        return self._paths[0].read_text(encoding="utf-8", errors="replace")

    @property
    def log(self) -> str:
        return self._paths[1].read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL the whole group and wait until it is gone."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def suspend(self) -> None:
        """SIGSTOP, in the middle of whatever it does; return once each thread has stopped: on a busy machine some go on for a while."""
        os.killpg(self.pid, signal.SIGSTOP)
        while not all(state in "TtZX" for state in self._states()):
            time.sleep(0.001)

    def _states(self) -> Iterator[str]:
        """Yield the state of each thread, where the system tells."""
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            with suppress(OSError):  # it has ended
                yield stat.read_text().rpartition(")")[2].split()[0]

    def thaw(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        os.kill(self.pid, signal.SIGTERM)


class File:
    """A SQLite store."""

    def __init__(self, path: Path) -> None:
        self._path, self.url = path, f"sqlite:///{path}"

    @contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        """Give a connection to the file, through the same SQLite as the engine."""
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(10_000)
        try:
            yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[apsw.Connection]:
        """Give a connection in a transaction of its own, committed at the end."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def lets_others_write(self) -> bool:
        """Return whether nobody holds the file's lock."""
        with self.connection() as connection:
            connection.set_busy_timeout(500)
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                return False
            connection.execute("ROLLBACK")
        return True

    def size(self) -> int:
        """Return the bytes of all that is stored."""
        with self.connection() as connection:
            found: Any = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchall()
        return int(found[0][0])

    def sound(self) -> bool:
        """Return whether the file is whole."""
        with self.connection() as connection:
            return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Tables:
    """A PostgreSQL store."""

    def __init__(self, database: Database) -> None:
        self._database, self.url = database, database.url

    def connection(self) -> AbstractContextManager[Inspection]:
        """Give a connection in which the tables have the names and columns of SQLite's."""
        return Inspection(self._database)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """Give a connection in a transaction of its own, committed at the end."""
        connection: asyncpg.Connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    def lets_others_write(self) -> bool:
        """A process that is frozen in a transaction holds a few rows, and not for long."""
        return True

    def size(self) -> int:
        """Return the bytes of all that is stored."""
        with self.connection() as connection:
            found = connection.execute(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'romulus'::regnamespace AND relkind = 'r'"
            )
            return int(found.fetchone()[0])

    def sound(self) -> bool:
        """The server sees to that."""
        return True


class Stage:
    """One test's store, its processes, its effects file, its gates, and a client."""

    def __init__(self, directory: Path, client: romulus.AsyncClient, store: File | Tables) -> None:
        self.directory, self.client, self.store, self.url = directory, client, store, store.url
        self.processes: list[Process] = []
        self.program = "romulus.cli"  # what `romulus …` is from now on
        found = os.environ.get("PYTHONPATH")
        self.environment = {
            "ROMULUS_STORE": self.url, DIRECTORY: str(directory),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{found}" if found else str(ROOT),
        }  # fmt: skip

    # ---- processes -------------------------------------------------------------------------------

    def cli(self, *arguments: str, **environment: str) -> Process:
        """Start `romulus …`."""
        return self.python(self.program, *arguments, **environment)

    def python(self, module: str, *arguments: str, **environment: str) -> Process:
        """Start `python -m MODULE …`."""
        process = Process(
            f"process-{len(self.processes)}", [sys.executable, "-m", module, *arguments], self.directory,
            {**os.environ, **self.environment, **QUICK, **environment},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def starting_worker(self, target: str, *options: str, **environment: str) -> Process:
        """Start `romulus worker TARGET` without waiting for it."""
        return self.cli("worker", target, *options, **environment)

    async def worker(self, target: str, *options: str, **environment: str) -> Process:
        """Start `romulus worker TARGET` and wait until it is ready."""
        process = self.starting_worker(target, *options, **environment)
        await self.ready(process)
        return process

    async def ready(self, *workers: Process) -> None:
        """Wait until each says that it is ready."""
        for worker in workers:
            await self.until(lambda worker=worker: "worker ready" in worker.log or worker.exit_code is not None, f"{worker.name} ready")
            assert worker.exit_code is None, worker.log

    async def exited(self, process: Process) -> int:
        """Wait until a process has ended and return its exit code."""
        await self.until(lambda: process.exit_code is not None, f"{process.name} ended")
        code = process.exit_code
        assert code is not None
        return code

    async def freeze(self, process: Process) -> None:
        """SIGSTOP a process outside of a write: inside one it holds the file's lock, and nobody writes until it goes on."""
        process.suspend()
        while not self.store.lets_others_write():
            process.thaw()
            await asyncio.sleep(0.01)
            process.suspend()

    async def stop(self, process: Process) -> None:
        """SIGTERM a process and require a graceful end."""
        process.terminate()
        assert await self.exited(process) == 0, process.log

    def deploy(self, module: str, code: str) -> None:
        """Write a module that workers started from now on import."""
        shutil.rmtree(self.directory / "__pycache__", ignore_errors=True)  # it tells two versions apart by the second only
        (self.directory / f"{module}.py").write_text(code, encoding="utf-8")

    # ---- what happened ---------------------------------------------------------------------------

    def effects(self, what: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines that step bodies wrote, those that have all of the fields."""
        path = self.directory / "effects"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        wanted = fields if what is None else {"what": what, **fields}
        return [line for line in lines if all(line.get(name) == value for name, value in wanted.items())]

    async def seen(self, what: str, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """Wait until step bodies wrote *count* such lines and return them."""
        await self.until(lambda: len(self.effects(what, **fields)) >= count, f"{count} × {what} {fields}")
        return self.effects(what, **fields)

    def open(self, gate: str) -> None:
        """Open a gate that bodies wait at."""
        (self.directory / f"gate-{gate}").touch()

    def shut(self, door: str) -> None:
        """Shut a door that bodies come to."""
        (self.directory / f"shut-{door}").touch()

    def unshut(self, door: str) -> None:
        """Let the bodies at a door go on."""
        (self.directory / f"shut-{door}").unlink()

    def rows(self, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Return what a query, in the words of SQLite's tables, finds in the store."""
        with self.database() as connection:
            found: list[tuple[Any, ...]] = connection.execute(sql, bindings).fetchall()
            return found

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Give a connection in a transaction, as an application has one."""
        return self.store.transaction()

    def database(self) -> AbstractContextManager[Any]:
        """Give a connection to the store."""
        return self.store.connection()

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}\n{self.story()}"
            await asyncio.sleep(0.01)

    async def status(self, run_id: str, *statuses: str) -> romulus.RunDescription:
        """Wait until a run has one of the statuses."""
        end = time.monotonic() + PATIENCE_S
        while (seen := await self.client.get(run_id).describe()).status not in statuses:
            assert time.monotonic() < end, f"{run_id} is {seen}\n{self.story()}"
            await asyncio.sleep(0.01)
        return seen

    def story(self) -> str:
        """Return what the processes said, for a failing test."""
        return "\n".join(f"---- {p.name} (exit {p.exit_code})\n{p.out[-1_000:]}{p.log[-3_000:]}" for p in self.processes)

    def whole(self) -> None:
        """Check what must hold of any record: gap-free journals whose fences never fall, nothing left of ended runs, a sound store."""
        journal = self.rows("SELECT generation, count(*), min(position), max(position) FROM journal GROUP BY generation")
        assert [row for row in journal if row[2] != 0 or row[3] != row[1] - 1] == []
        assert self.rows(BACKWARDS) == []
        ended = "('succeeded', 'failed', 'cancelled', 'terminated')"
        assert self.rows(f"SELECT id FROM runs WHERE status IN {ended} AND (owner IS NOT NULL OR queue_at IS NOT NULL)") == []
        assert self.rows(f"SELECT r.id FROM waits w JOIN runs r ON r.key = w.run WHERE r.status IN {ended}") == []
        assert self.rows("SELECT r.id FROM attempts a JOIN runs r ON r.generation_key = a.generation WHERE r.status IN ('succeeded')") == []
        assert self.store.sound()

    def close(self) -> None:
        """Leave no process behind."""
        for process in self.processes:
            process.kill()


on_both_stores = pytest.mark.parametrize("stage", ["sqlite", "postgres"], indirect=True)
on_postgres = pytest.mark.parametrize("stage", ["postgres"], indirect=True)
on_own_postgres = pytest.mark.parametrize("stage", ["own_postgres"], indirect=True)  # for tests that change more than rows
on_own_server = pytest.mark.parametrize("stage", ["own_server"], indirect=True)  # for tests that stop the server
DATABASES = {"postgres": "database", "own_postgres": "own_database", "own_server": "own_server_database"}


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """A store without workers, on SQLite unless the test says otherwise; what a test leaves running is killed."""
    kind = getattr(request, "param", "sqlite")
    store = File(tmp_path / "romulus.db") if kind == "sqlite" else Tables(request.getfixturevalue(DATABASES[kind]))
    async with romulus.AsyncClient(store.url) as client:
        made = Stage(tmp_path, client, store)
        try:
            yield made
        finally:
            made.close()
