"""One statement put together from parts: each part is a CTE over arrays that stand for its rows, or over the one row that it has."""

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
    "$69 $70 $71 $72 $73 $74 $75 $76 $77 $78 $79 $80 $81 $82 $83 $84 $85 $86 $87 $88 $89 $90 $91 $92 $93 $94 $95 $96 $97 $98 $99 $100 "
    "$101 $102 $103 $104 $105 $106 $107 $108 $109 $110 $111 $112 $113 $114 $115 $116 $117 $118 $119 $120 $121 $122 $123 $124 $125 $126 "
    "$127 $128 $129 $130 $131 $132 $133 $134 $135 $136 $137 $138 $139 $140 $141 $142 $143 $144 $145 $146 $147 $148 $149 $150"
).split()


class Statement:
    """Gathers CTEs and what they are given; what is not needed by a batch is no part of its statement.

    *alone*: it is for one transition, of which most things are one row. Such a row is given as it is: an array costs the server 5 µs.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._alone = alone
        self._parts: list[LiteralString] = ["c AS MATERIALIZED (SELECT romulus.clock() AS now)"]
        self.args: list[Any] = []

    def rows(self, columns: LiteralString, rows: Sequence[Sequence[Any]]) -> LiteralString:
        """Return the source that yields *rows*; *columns* is "name type, name type, …"."""
        if self._alone and len(rows) == 1:
            first = len(self.args)
            self.args += rows[0]
            return _row(columns, first)
        source, as_text = _source(columns, len(self.args))
        self.args += [array(column) if text else list(column) for text, column in zip(as_text, zip(*rows, strict=True), strict=True)]
        return source

    def named_rows(self, name: LiteralString, columns: LiteralString, rows: Sequence[Sequence[Any]]) -> None:
        """Add a CTE of *rows* that several others read; one row is written out in each of them."""
        kept: LiteralString = "NOT MATERIALIZED" if self._alone and len(rows) == 1 else "MATERIALIZED"
        self.part(f"{name} AS {kept} (SELECT * FROM {self.rows(columns, rows)} x)")

    def part(self, sql: LiteralString) -> None:
        """Add a CTE, "name AS (…)"."""
        self._parts.append(sql)

    def sql(self, select: LiteralString) -> LiteralString:
        """Return the whole statement, which ends in *select*."""
        parts: LiteralString = ",\n".join(self._parts)
        return f"WITH {parts}\n{select}"


@cache
def _row(columns: LiteralString, first: int) -> LiteralString:
    """Return the source of the one row whose values begin at parameter *first*."""
    pairs = [pair.strip().split(" ") for pair in columns.split(",")]
    given: LiteralString = ", ".join([f"{PLACES[first + n]}::{kind} AS {name}" for n, (name, kind) in enumerate(pairs)])
    return f"(SELECT {given})"


@cache
def _source(columns: LiteralString, first: int) -> tuple[LiteralString, list[bool]]:
    """Return the source whose arrays begin at parameter *first*, and of each whether it is given as a text."""
    pairs = [pair.strip().split(" ") for pair in columns.split(",")]
    as_text = [kind not in ("text", "bytea") for _, kind in pairs]
    given: list[LiteralString] = ["::text" if text else "" for text in as_text]
    arrays: LiteralString = ", ".join([f"{PLACES[first + n]}{given[n]}::{kind}[]" for n, (_, kind) in enumerate(pairs)])
    names: LiteralString = ", ".join([name for name, _ in pairs])
    return f"(SELECT * FROM unnest({arrays}) AS u ({names}))", as_text
