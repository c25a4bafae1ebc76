"""The program of the second interpreter: imports the App and replays what the worker tells, until the worker's pipe closes.

It does nothing but that: its standard streams lead nowhere, loggers are silent, no store opens, and steps are never called.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

from romulus.authoring.refusal import install
from romulus.authoring.registry import Registry
from romulus.core.errors import UnknownWorkflow
from romulus.store import refuse_stores

from .shadowed import Shadowed
from .words import Answer, Broken, Committed, Differs, Done, Forget, Lost, Past, Ready, Target, Told, Watch, packed, read_frame, unpacked

STORE_REFUSED = (
    "this is the second interpreter of development mode, which only replays: "
    'put what starts runs or workers under `if __name__ == "__main__":`'
)


def main() -> None:
    """Serve the worker that started this process."""
    take, give = _own_the_pipes()
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(take, frames), name="romulus-shadow-pipe", daemon=True).start()
    registry = _imported(unpacked(frames.get()), give)
    if registry is None:
        return
    install()
    give(Ready(registry.digests))
    replays = Replays(registry, give)
    while True:
        body = frames.get()
        replays.hear(unpacked(body))
        give(Done(len(body), replays.replayed))


class Replays:
    """The runs that the worker has in memory."""

    def __init__(self, registry: Registry, give: Callable[[Answer], None]) -> None:
        self._registry, self._give = registry, give
        self._runs: dict[int, Shadowed] = {}
        self._forgotten = 0  # entries delivered to runs that are no longer here

    @property
    def replayed(self) -> int:
        """Return how many entries were delivered, in all passes over all runs."""
        return self._forgotten + sum(run.replayed for run in self._runs.values())

    def hear(self, told: Told) -> None:
        """Do what the worker's message asks."""
        match told:
            case Watch():
                self._watch(told)
            case Past() | Committed():
                self._follow(told)
            case Forget():
                self._forget(told.key)

    def _watch(self, watch: Watch) -> None:
        """Begin to follow a run; one whose workflow is not here has been told of with the digests."""
        with suppress(UnknownWorkflow):
            self._runs[watch.key] = Shadowed(watch, self._registry)

    def _follow(self, told: Past | Committed) -> None:
        """Follow a run; one that cannot be followed must not end the shadow of the others."""
        run = self._runs.get(told.key)
        if run is None:
            return
        try:
            found = run.tell(told)
        except Exception:  # noqa: BLE001  told to the worker, whatever it is
            self._give(Lost(told.key, run.run_id, traceback.format_exc()))
            self._forget(told.key)
            return
        if found is not None:
            self._give(Differs(told.key, run.run_id, found))

    def _forget(self, key: int) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._forgotten += run.replayed
            run.close()


def _own_the_pipes() -> tuple[Callable[[int], bytes], Callable[[Answer], None]]:
    """Return how to read from and answer the worker; what the user's code reads or prints leads nowhere from here on."""
    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  for as long as the process lasts
    logging.disable()

    def give(answer: Answer) -> None:
        outward.write(packed(answer))
        outward.flush()

    return inward.read, give


def _listen(read: Callable[[int], bytes], frames: queue.SimpleQueue[bytes]) -> None:
    """Pass on what the worker says; end the process with it, whatever the user's code is doing."""
    while (body := read_frame(read)) is not None:
        frames.put(body)
    os._exit(0)


def _imported(target: Target, give: Callable[[Answer], None]) -> Registry | None:
    """Return the registry of the App, None after telling why it cannot be imported."""
    refuse_stores(STORE_REFUSED)
    try:
        if target.main is not None:
            spawn.prepare(target.main)
        app: Any = getattr(importlib.import_module(target.module), target.attribute)
        registry: Registry = app.registry
    except BaseException as error:  # noqa: BLE001  a user's module may raise anything
        give(Broken(f"{type(error).__name__}: {error}"))
        return None
    return registry
