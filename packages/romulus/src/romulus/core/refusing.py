"""The part of the event loop interface that reaches outside: refused, with what to do instead."""

from __future__ import annotations

import asyncio
from typing import Any

from .errors import NondeterminismRefused


def refused(name: str) -> Any:
    """Return a method that refuses `loop.<name>()`."""

    def method(self: RefusingLoop, *args: Any, **kwargs: Any) -> Any:
        raise self.refuse(name)

    method.__name__ = name
    return method


class RefusingLoop(asyncio.AbstractEventLoop):
    """An event loop without files, sockets, threads, processes and signals."""

    refusal: NondeterminismRefused | None = None  # the first one of this generation

    def refuse(self, name: str) -> NondeterminismRefused:
        """Return the error that says why *name* is refused and what to do."""
        error = NondeterminismRefused(
            f"workflow code called loop.{name}(), which reaches outside the run and cannot be repeated by a replay: put it in a step"
        )
        self.refusal = self.refusal or error
        return error

    add_reader = remove_reader = add_writer = remove_writer = refused("add_reader")
    add_signal_handler = remove_signal_handler = refused("add_signal_handler")
    call_soon_threadsafe = refused("call_soon_threadsafe")
    close = refused("close")
    connect_accepted_socket = refused("connect_accepted_socket")
    connect_read_pipe = refused("connect_read_pipe")
    connect_write_pipe = refused("connect_write_pipe")
    create_connection = refused("create_connection")
    create_datagram_endpoint = refused("create_datagram_endpoint")
    create_server = refused("create_server")
    create_unix_connection = refused("create_unix_connection")
    create_unix_server = refused("create_unix_server")
    getaddrinfo = refused("getaddrinfo")
    getnameinfo = refused("getnameinfo")
    run_forever = refused("run_forever")
    run_in_executor = refused("run_in_executor")  # asyncio.to_thread too
    run_until_complete = refused("run_until_complete")
    sendfile = refused("sendfile")
    set_default_executor = refused("set_default_executor")
    set_task_factory = refused("set_task_factory")
    shutdown_asyncgens = refused("shutdown_asyncgens")
    shutdown_default_executor = refused("shutdown_default_executor")
    sock_accept = refused("sock_accept")
    sock_connect = refused("sock_connect")
    sock_recv = refused("sock_recv")
    sock_recv_into = refused("sock_recv_into")
    sock_recvfrom = refused("sock_recvfrom")
    sock_recvfrom_into = refused("sock_recvfrom_into")
    sock_sendall = refused("sock_sendall")
    sock_sendfile = refused("sock_sendfile")
    sock_sendto = refused("sock_sendto")
    start_tls = refused("start_tls")
    stop = refused("stop")
    subprocess_exec = refused("subprocess_exec")
    subprocess_shell = refused("subprocess_shell")
