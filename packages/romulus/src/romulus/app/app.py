"""`App`: workflows, the steps they reach, and the store they run on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from romulus.authoring.checks import check_name
from romulus.authoring.registry import Declared, Registry
from romulus.authoring.resource import Resource
from romulus.authoring.workflow import AnyWorkflow
from romulus.client import AsyncClient
from romulus.client.source import Source
from romulus.core.errors import ConfigurationError
from romulus.core.values import Codec
from romulus.worker.worker import Worker

from . import development, loops, serving, supervisor
from .settings import store_url, value_of, worker_settings

P = ParamSpec("P")
T = TypeVar("T")
VALUE_MAX_BYTES = 2 * 1024 * 1024
CONCURRENCY_MAX = 100_000
PROCESSES_MAX = 256


class App:
    """What a process can run.

    Args:
        store: a store URL; else ROMULUS_STORE, else the file romulus.db in the working directory.
        workflows: with all that they reach by name. steps: those found dynamically. resources: what steps need open.
        namespace: keeps runs, events and workers of one store apart.
        codec: encrypts or compresses every stored value. value_max_bytes: the largest value, before the codec.

    Raises:
        DefinitionError: a declaration is wrong or two clash. NotDeterministic: workflow code calls what replays cannot repeat.
    """

    def __init__(
        self, store: str | None = None, *, workflows: Iterable[AnyWorkflow[..., Any]],
        steps: Iterable[Declared] = (), resources: Iterable[Resource[Any]] = (),
        namespace: str = "default", codec: Codec | None = None, value_max_bytes: int = VALUE_MAX_BYTES,
    ) -> None:  # fmt: skip
        self.registry = Registry(workflows, steps, resources, codec=codec, value_max_bytes=value_max_bytes)
        self.namespace = check_name(namespace, "namespace")
        self.source = Source(store_url(store))

    def __repr__(self) -> str:
        names = ", ".join(sorted({name for name, _ in self.registry.workflows}))
        return f"<romulus App of {names or 'no workflows'}>"

    def client(self) -> AsyncClient:
        """Return a client with this App's store, namespace and code."""
        return AsyncClient(self)

    def worker(self, *, concurrency: int | None = None, pools: Sequence[str] = ("default",)) -> AbstractAsyncContextManager[None]:
        """Return what works on runs in this event loop while it is entered.

        Args:
            concurrency: attempts under way at once; ROMULUS_CONCURRENCY, else 100, unless given.
            pools: whose steps it works; "default" claims runs and works the steps without a pool.
        """
        return self._worker(_bounded("concurrency", concurrency, CONCURRENCY_MAX, "ROMULUS_CONCURRENCY"), _pools(pools))

    def run_worker(self, *, concurrency: int | None = None, pools: Sequence[str] = ("default",), processes: int = 1) -> None:
        """Work on runs until SIGTERM or SIGINT; attempts under way then have the grace period to end.

        Args:
            processes: worker processes; more than one are spawned, supervised and restarted.

        Raises:
            ConfigurationError: several processes, and this App is no attribute of a module that they could import.
        """
        count = _bounded("concurrency", concurrency, CONCURRENCY_MAX, "ROMULUS_CONCURRENCY")
        if _bounded("processes", processes, PROCESSES_MAX) == 1:
            serving.serve(self, count, _pools(pools))
        else:
            supervisor.supervise(self, count, _pools(pools), processes)

    def run(self, workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Start a run, or go on with the one its ID names, work on it here to its end and return its result.

        Without an ID a new run begins, whose ID is printed on stderr. Ctrl-C or a crash leaves it to be gone on with.

        Raises:
            RunFailed, RunCancelled, RunTerminated, RunHeld, RunConflict; UnknownWorkflow: it is not in this App.
        """
        return loops.run(self._run(workflow, *args, **kwargs))

    async def _run(self, workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.registry.workflow(workflow.name, workflow.version)
        async with self.client() as client:
            handle = await client.start(workflow, *args, **kwargs)
            if workflow.start_options.id is None:
                _say(f"run {handle.id}")
            try:
                async with self._worker(_bounded("concurrency", None, CONCURRENCY_MAX, "ROMULUS_CONCURRENCY"), ("default",), settle=True):
                    return await handle.result(raise_on_hold=True)
            except asyncio.CancelledError:
                _say(f"stopped; run {handle.id} goes on when it is started again or a worker runs")
                raise

    @asynccontextmanager
    async def _worker(self, concurrency: int, pools: tuple[str, ...], *, settle: bool = False) -> AsyncGenerator[None]:
        """Work while entered. *settle*: development mode may then finish its comparison, as nothing else is waited for."""
        settings, shadow = worker_settings(), development.shadow(self, self.registry.digests)
        opened = await self.source.acquire()
        try:
            worker = Worker(
                opened.store, opened.host, self.registry, namespace=self.namespace, concurrency=concurrency, pools=pools,
                settings=settings, observer=shadow,
            )  # fmt: skip
            await worker.start()
            try:
                yield
                if settle and shadow is not None:
                    await shadow.settled(development.SETTLE_MAX)
            finally:
                await worker.stop(settings.grace)
        finally:
            await self.source.release()


def run(workflow: AnyWorkflow[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run *workflow* to its end here, on the default store: `App(workflows=[workflow]).run(workflow, …)`."""
    return App(workflows=[workflow]).run(workflow, *args, **kwargs)


def _bounded(name: str, given: int | None, largest: int, variable: str = "") -> int:
    if given is None:
        return int(value_of(variable))
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= largest:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{name} is {given!r}; give a whole number from 1 to {largest}")
    return given


def _pools(pools: Sequence[str]) -> tuple[str, ...]:
    if isinstance(pools, str) or not pools:
        raise ConfigurationError(f'pools is {pools!r}; give a sequence of names such as ("default",)')
    return tuple(check_name(pool, "pool") for pool in pools)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
