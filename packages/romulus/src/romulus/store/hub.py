"""In-process notices between everything that shares one store object: a hint to look, never a fact to act on."""

from __future__ import annotations

from collections.abc import Callable

Notice = Callable[[], object]


class Hub:
    """Tells workers of new work and clients of changed runs, on the loop that uses the store."""

    def __init__(self) -> None:
        self._workers: dict[int, Notice] = {}
        self._watchers: dict[tuple[str, str], dict[int, Notice]] = {}
        self._next = 0

    def poke(self) -> None:
        """Tell the workers here that a run, event or cancel may wait for them."""
        for notice in tuple(self._workers.values()):
            notice()

    def listen(self, notice: Notice) -> Notice:
        """Call *notice* at each poke; the returned function ends that."""
        key = self._key()
        self._workers[key] = notice
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
