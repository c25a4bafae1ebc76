"""The one place where the store's statements are executed, with a crash point before and after each."""

from __future__ import annotations

from typing import Any, LiteralString, Protocol

from romulus.core.ports import Host

from .rows import Row


class Session(Protocol):
    """Executes statements in the order they are asked for: on our connection, or in a caller's own transaction."""

    host: Host

    async def rows(self, name: LiteralString, sql: LiteralString, *args: Any) -> list[Row]:
        """Execute one statement and return its rows."""
        ...

    async def row(self, name: LiteralString, sql: LiteralString, *args: Any) -> Row | None:
        """Execute one statement and return its first row."""
        ...

    async def value(self, name: LiteralString, sql: LiteralString, *args: Any) -> Any:
        """Return the first column of the first row; None: there is no row."""
        ...


class OwnSession:
    """A session on a connection of the store."""

    def __init__(self, connection: Any, host: Host) -> None:
        self.connection, self.host = connection, host
        self._point = host.crash_point

    async def rows(self, name: LiteralString, sql: LiteralString, *args: Any) -> list[Row]:
        """Execute one statement and return its rows."""
        self._point(name)
        found: list[Row] = await self.connection.fetch(sql, *args)
        self._point(name + ".done")
        return found

    async def row(self, name: LiteralString, sql: LiteralString, *args: Any) -> Row | None:
        """Execute one statement and return its first row."""
        found = await self.rows(name, sql, *args)
        return found[0] if found else None

    async def value(self, name: LiteralString, sql: LiteralString, *args: Any) -> Any:
        """Return the first column of the first row."""
        found = await self.rows(name, sql, *args)
        return found[0][0] if found else None

    async def plain(self, name: LiteralString, sql: LiteralString) -> None:
        """Execute statements without parameters or answers, in one message: BEGIN, COMMIT, DDL."""
        self._point(name)
        await self.connection.execute(sql)
        self._point(name + ".done")
