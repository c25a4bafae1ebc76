"""One statement put together from parts: each part is a CTE over arrays that stand for its rows."""

# ruff: noqa: S608  # every statement is put together from literals: `LiteralString` is checked
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final, LiteralString

from .rows import array

# Written out, so that every statement stays a text of the source code and nothing else.
PLACES: Final = (
    "$1 $2 $3 $4 $5 $6 $7 $8 $9 $10 $11 $12 $13 $14 $15 $16 $17 $18 $19 $20 $21 $22 $23 $24 $25 $26 $27 $28 $29 $30 $31 $32 $33 $34 $35 "
    "$36 $37 $38 $39 $40 $41 $42 $43 $44 $45 $46 $47 $48 $49 $50 $51 $52 $53 $54 $55 $56 $57 $58 $59 $60 $61 $62 $63 $64 $65 $66 $67 $68 "
    "$69 $70 $71 $72 $73 $74 $75 $76 $77 $78 $79 $80 $81 $82 $83 $84 $85 $86 $87 $88 $89 $90 $91 $92 $93 $94 $95 $96 $97 $98 $99"
).split()


class Statement:
    """Gathers CTEs and their arrays; what is not needed by a batch is no part of its statement."""

    def __init__(self) -> None:
        self._parts: list[LiteralString] = ["c AS MATERIALIZED (SELECT romulus.clock() AS now)"]
        self.args: list[list[Any] | str] = []

    def rows(self, columns: LiteralString, rows: Sequence[Sequence[Any]]) -> LiteralString:
        """Return the source that yields *rows*; *columns* is "name type, name type, …"."""
        source, as_text = _source(columns, len(self.args))
        self.args += [array(column) if text else list(column) for text, column in zip(as_text, zip(*rows, strict=True), strict=True)]
        return source

    def part(self, sql: LiteralString) -> None:
        """Add a CTE, "name AS (…)"."""
        self._parts.append(sql)

    def sql(self, select: LiteralString) -> LiteralString:
        """Return the whole statement, which ends in *select*."""
        parts: LiteralString = ",\n".join(self._parts)
        return f"WITH {parts}\n{select}"


@cache
def _source(columns: LiteralString, first: int) -> tuple[LiteralString, list[bool]]:
    """Return the source whose arrays begin at parameter *first*, and of each whether it is given as a text."""
    pairs = [pair.strip().split(" ") for pair in columns.split(",")]
    as_text = [kind not in ("text", "bytea") for _, kind in pairs]
    given: list[LiteralString] = ["::text" if text else "" for text in as_text]
    arrays: LiteralString = ", ".join([f"{PLACES[first + n]}{given[n]}::{kind}[]" for n, (_, kind) in enumerate(pairs)])
    names: LiteralString = ", ".join([name for name, _ in pairs])
    return f"(SELECT * FROM unnest({arrays}) AS u ({names}))", as_text
