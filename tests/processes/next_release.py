"""`romulus …` as a next release may be: one schema version on, which adds to what there is."""

from __future__ import annotations

import os

from romulus.cli import main
from romulus.store.postgres import migrate, schema, store

ADDS = (
    "ALTER TABLE romulus.runs ADD COLUMN added_later text NOT NULL DEFAULT ''",
    "CREATE TABLE romulus.added_later (run bigint NOT NULL PRIMARY KEY, what text NOT NULL)",
    "CREATE INDEX runs_added_later ON romulus.runs (added_later) WHERE added_later <> ''",
)
VERSION = schema.VERSION + 1


def become_the_next_release() -> None:
    """Let this process be of the next release; the environment says which schema versions' releases still work on its schema."""
    migrate.MIGRATIONS = (*migrate.MIGRATIONS, ADDS)  # type: ignore[misc]
    for module in (migrate, store):
        vars(module)["VERSION"] = VERSION
    vars(migrate)["COMPATIBLE"] = int(os.environ.get("NEXT_COMPATIBLE", schema.COMPATIBLE))


if __name__ == "__main__":
    become_the_next_release()
    main()
