"""A bounded pool of daemon threads: a step's thread that does not end keeps nobody's process from ending."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import Any, ParamSpec, TypeVar

from .switching import BODIES_S, ask

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(Executor):
    """Like `ThreadPoolExecutor`, whose threads the interpreter waits for at exit, however long a body sleeps or hangs."""

    def __init__(self, threads_max: int, prefix: str) -> None:
        self._max, self._prefix = threads_max, prefix
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = Semaphore(0)  # threads that wait for a call
        self._lock = Lock()
        self._threads: list[Thread] = []
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call on an idle thread, else on a new one, else on the first that becomes idle."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool has been shut down")
            self._calls.put((future, partial(fn, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max:
                self._threads.append(Thread(target=self._run, name=f"{self._prefix}_{len(self._threads)}", daemon=True))
                self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; threads end with the call they are in."""
        with self._lock:
            self._closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._calls.put(None)  # each takes one and ends
        if wait:
            for thread in self._threads:
                thread.join()

    def _cancel_waiting(self) -> None:
        while not self._calls.empty():  # threads may be faster: whoever gets a call either cancels or runs it
            with suppress(Empty):
                call = self._calls.get(block=False)
                if call is not None:
                    call[0].cancel()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            end = ask(BODIES_S)
            try:
                _perform(*call)
            finally:
                end()
            del call  # holds what the body returned

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Return the next call, None at the end."""
        try:
            return self._calls.get(block=False)
        except Empty:
            self._idle.release()
            return self._calls.get()


def _perform(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except StopIteration as error:  # no asyncio future takes one: whoever awaits it would wait for ever
        raised = RuntimeError(f"the call raised StopIteration({error.value!r})")
        raised.__cause__ = error
        future.set_exception(raised)
    except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
        future.set_exception(error)
    else:
        future.set_result(result)
