"""Which database the store is, by which a caller's connection to another one is told from a connection to this one."""

from __future__ import annotations

from typing import Any, Final, LiteralString
from weakref import WeakSet

from romulus.core.errors import ConfigurationError

from .faults import state_of
from .pool import Pool
from .session import Session

# A copy of a database has its incarnation: one beside it is another database, one made from a dump has another table.
IDENTITY: Final[LiteralString] = (
    "SELECT concat_ws(' ', d.oid, m.tableoid, m.value), current_database()::text FROM romulus.meta m "
    "JOIN pg_catalog.pg_database d ON d.datname = current_database() WHERE m.name = 'incarnation'"
)
WITHOUT_SCHEMA: Final = frozenset({"3F000", "42P01"})
WITHOUT_RIGHTS: Final = "42501"
REMEDY: Final = "give one to the store's own database, or make the App or client with the URL of that one"


class Identity:
    """What the store's database is known by, and the callers' connections that are known to be to it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: str | None = None
        self._ours = WeakSet[Any]()

    async def check(self, connection: Any, session: Session) -> None:
        """Refuse a caller's *connection* that is to another store; each is asked once, in its *session*.

        Raises:
            ConfigurationError: it is, or that cannot be found out.
        """
        lasting = getattr(connection, "_con", connection)  # an asyncpg pool lends the same one again in another wrapping
        if lasting in self._ours:
            return
        found, database = await self._asked(session)
        if found is None or not (found == self._known or found == await self._read()):
            raise ConfigurationError(
                f"nothing was written: the connection is to the database {database!r}, which is another store than "
                f"{self._pool.place.shown}: {REMEDY}"
            )
        self._ours.add(lasting)

    async def _read(self) -> str | None:
        """Return what the store's database is known by now: a restore or a move changes that."""
        self._known = await self._pool.read(lambda s: s.value("identity.store", IDENTITY))
        return self._known

    async def _asked(self, session: Session) -> tuple[str | None, str]:
        """Return what the database of a caller's *session* is known by, and its name."""
        shown = self._pool.place.shown
        try:
            row = await session.row("identity.callers", IDENTITY)
        except Exception as error:
            if state_of(error) in WITHOUT_SCHEMA:
                raise ConfigurationError(
                    f"nothing was written: the connection's database has no schema romulus, so it is not the store {shown}: {REMEDY}"
                ) from error
            if state_of(error) == WITHOUT_RIGHTS:
                raise ConfigurationError(
                    f"nothing was written: the connection's role may not read romulus.meta, by which {shown} is told from other stores: "
                    "grant it USAGE on the schema romulus and SELECT on that table"
                ) from error
            raise
        return (row[0], row[1]) if row else (None, "")
