"""Owners of something that have no live row: found without reading what live workers have finished."""

# ruff: noqa: S608  # the statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from typing import LiteralString


def gone_owners(table: LiteralString) -> LiteralString:
    """Return the query for the owners of rows of *table*, which has an index of them, that have no live row.

    They lie between two live ones, each found by one step in the index. So what live workers have claimed and finished is not read: its
    dead entries stay there as long as somebody's transaction is open.
    """
    return (
        "WITH RECURSIVE live (id, next) AS MATERIALIZED (SELECT id, lead(id) OVER (ORDER BY id) FROM "
        "(SELECT '' AS id UNION ALL SELECT id FROM romulus.workers WHERE NOT dead) w), "
        f"o (owner, next) AS (SELECT {_next(table, 'live.id', 'live.next')}, live.next FROM live UNION ALL "
        f"SELECT {_next(table, 'o.owner', 'o.next')}, o.next FROM o WHERE o.owner IS NOT NULL) SELECT owner FROM o WHERE owner IS NOT NULL"
    )


def _next(table: LiteralString, after: LiteralString, before: LiteralString) -> LiteralString:
    first: LiteralString = f"SELECT min(r.owner) FROM romulus.{table} r WHERE r.owner > {after}"
    return f"CASE WHEN {before} IS NULL THEN ({first}) ELSE ({first} AND r.owner < {before}) END"
