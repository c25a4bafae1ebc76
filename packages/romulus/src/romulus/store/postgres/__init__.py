"""The PostgreSQL store, on asyncpg."""

from romulus.core.ports import Host

from .migrate import check, missing_sql
from .place import Place, place_of
from .pool import Pool
from .store import PostgresStore


async def checked(url: str, host: Host) -> str:
    """Return in words how far a database's schema is; nothing is made or changed."""
    pool = Pool(place_of(url), host, 1)
    try:
        await pool.open()
        return f"{pool.place.shown}: {await check(pool)}"
    finally:
        await pool.close()


async def sql_for(url: str, host: Host) -> str:
    """Return the SQL that brings a database to this release's schema; nothing is made or changed."""
    pool = Pool(place_of(url), host, 1)
    try:
        await pool.open()
        return await missing_sql(pool)
    finally:
        await pool.close()


__all__ = ["Place", "PostgresStore", "checked", "place_of", "sql_for"]
