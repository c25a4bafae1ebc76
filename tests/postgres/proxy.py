"""A TCP proxy between store and server that cuts, swallows or stops what passes, at a message a test names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    """Passes bytes on until it is told otherwise."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self._server_port = server_port
        self._listening: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._marker: bytes | None = None
        self._how = ""
        self.open = asyncio.Event()  # cleared: nothing passes, nothing is closed
        self.open.set()
        self.cut = asyncio.Event()  # set once a cut has happened
        self._swallowed: set[asyncio.StreamReader] = set()
        self._readers: set[asyncio.StreamReader] = set()

    def cut_at(self, marker: bytes, how: str) -> None:
        """Cut the connection whose client sends *marker*.

        "before": the server never sees it. "during": the server gets it and works on. "after": it has answered, unheard. "silent": nothing
        is closed, and nothing passes from there on.
        """
        self._marker, self._how = marker, how
        self.cut.clear()

    def swallow_all(self) -> None:
        """Let nothing more pass on the connections that are open now, and close none of them; new ones are as before."""
        self._swallowed |= self._readers

    def drop_all(self) -> None:
        """Close every connection."""
        for writer in tuple(self._writers):
            writer.close()

    async def go_away(self) -> None:
        """Close everything and refuse what comes, until `start`."""
        assert self._listening is not None
        self._listening.close()
        self.drop_all()

    async def start(self) -> None:
        """Take connections; after `go_away` at the port as before."""
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listening is not None
        self._listening.close()
        self.drop_all()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        self._readers |= {reader, server_reader}
        back = asyncio.create_task(self._answers(server_reader, writer))
        forth = asyncio.create_task(self._requests(reader, writer, server_reader, server_writer, back))
        for task in (back, forth):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter, back: asyncio.Task[None],
    ) -> None:  # fmt: skip
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.open.wait()
                if reader in self._swallowed:
                    continue
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    if self._how == "silent":
                        self._swallowed |= {reader, server_reader}
                        self.cut.set()
                        continue
                    await self._do_cut(data, writer, server_reader, server_writer, back)
                    return
                server_writer.write(data)
        self._close(server_writer, reader)

    async def _do_cut(
        self, data: bytes, writer: asyncio.StreamWriter, server_reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter,
        back: asyncio.Task[None],
    ) -> None:  # fmt: skip
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
        if self._how != "before":
            server_writer.write(data)
        if self._how == "after":
            answer = b""
            while b"Z\x00\x00\x00\x05" not in answer:  # ReadyForQuery: it is committed
                answer += await server_reader.read(65536)
        writer.transport.abort()
        if self._how != "during":
            server_writer.close()
        self.cut.set()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.open.wait()
                if reader not in self._swallowed:
                    writer.write(data)
        self._close(writer, reader)

    def _close(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        """Tell one side that the other has closed; where nothing passes, that does not either."""
        if reader not in self._swallowed:
            writer.close()


@asynccontextmanager
async def proxied(server_port: int) -> AsyncIterator[Proxy]:
    """Give a proxy to a server's port."""
    proxy = Proxy(server_port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
