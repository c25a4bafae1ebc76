"""The life of a worker on PostgreSQL.

    uv run python -m tests.postgres.released.life

records it for the schema of this release, before that is released; from then on the tape stays as it is.
"""

from __future__ import annotations

import asyncio

from romulus.store.postgres import PostgresStore, place_of
from romulus.store.postgres.schema import VERSION
from tests.postgres.released.tape import PostgresTape, path_of
from tests.postgres.server import Database, running
from tests.store.life import START, StillHost, live


async def record(database: Database) -> PostgresTape:
    """Return the tape of this release, made on a new database."""
    host, tape = StillHost(), PostgresTape()
    store = PostgresStore(place_of(database.url), host)
    await store.open()
    database.freeze(START)
    with tape.recording():
        await live(store, host, tape.mark)
    await store.close()
    host.close()
    return tape


def main() -> None:
    """Write the tape of this release's schema."""
    with running() as server:
        tape = asyncio.run(record(Database(server, server.create())))
    tape.save(path_of(VERSION))
    print(f"schema {VERSION}: {len(tape.entries)} statements")


if __name__ == "__main__":
    main()
