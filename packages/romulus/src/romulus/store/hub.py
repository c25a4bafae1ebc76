"""In-process notices between everything that shares one store object: a hint to look, never a fact to act on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from romulus.core.machine import RunStatus

    from .contract import ClaimRequest, Claims

Notice = Callable[[], object]


class Ready(Protocol):
    """A worker here that would claim in the very commit that brings it work: a store that can spares a commit and a look."""

    def request(self) -> tuple[ClaimRequest, RunStatus] | None:
        """Return what it would claim at this moment, and the status that gives; None: nothing."""
        ...

    def waiting(self) -> AbstractContextManager[tuple[ClaimRequest, RunStatus] | None]:
        """Give what it would claim by a statement that is waited for while entered; None: nothing. It claims nothing else for a moment."""
        ...

    def claimed(self, request: ClaimRequest, claims: Claims) -> object:
        """Take what was claimed for it, once it is committed. Called with nothing awaited since `request`, or inside `waiting`."""
        ...

    def doubt(self) -> object:
        """Take note that its claim's commit had no answer."""
        ...


class Hub:
    """Tells workers of new work and clients of changed runs, on the loop that uses the store."""

    def __init__(self) -> None:
        self._workers: dict[int, tuple[Notice, Ready | None]] = {}
        self._watchers: dict[tuple[str, str], dict[int, Notice]] = {}
        self._next = 0

    def poke(self, *, but: Ready | None = None) -> None:
        """Tell the workers here that a run, event or cancel may wait for them, all *but* one that has looked already."""
        for notice, ready in tuple(self._workers.values()):
            if ready is None or ready is not but:
                notice()

    def matched(self) -> None:
        """Tell the workers here, where there are several, that what one of them has matched may be another's to claim."""
        if len(self._workers) > 1:
            self.poke()

    @property
    def ready(self) -> Iterable[Ready]:
        """Return the workers here that claim in the commit of others."""
        return [ready for _, ready in self._workers.values() if ready is not None]

    def listen(self, notice: Notice, ready: Ready | None = None) -> Notice:
        """Call *notice* at each poke, and let *ready* claim in the commit of others; the returned function ends that."""
        key = self._key()
        self._workers[key] = notice, ready
        return lambda: self._workers.pop(key, None)

    def changed(self, namespace: str, run_id: str) -> None:
        """Tell the watchers of a run that its row changed in a way they may wait for (parked, held or ended)."""
        watchers = self._watchers.get((namespace, run_id))
        if watchers:
            for notice in tuple(watchers.values()):
                notice()

    def watch(self, namespace: str, run_id: str, notice: Notice) -> Notice:
        """Call *notice* when the run changed; the returned function ends that."""
        key, name = self._key(), (namespace, run_id)
        self._watchers.setdefault(name, {})[key] = notice

        def unwatch() -> None:
            watchers = self._watchers.get(name)
            if watchers and watchers.pop(key, None) and not watchers:
                del self._watchers[name]

        return unwatch

    def _key(self) -> int:
        self._next += 1
        return self._next
