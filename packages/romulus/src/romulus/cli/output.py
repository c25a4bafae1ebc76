"""What a command prints: tables for people, JSON alone for programs, errors in one paragraph on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table
from rich.text import Text

from romulus.client import Page

from .text import safe, shortened

WIDE = 10_000  # columns where nobody's window limits them: piped tables are not cut
CELL_MAX_CHARS = 100
Columns = Mapping[str, Callable[[Any], object]]


def print_json(value: object) -> None:
    """Print *value* as one JSON document on one line: dataclasses by field, times in RFC 3339."""
    sys.stdout.write(json.dumps(jsonable(value), allow_nan=False) + "\n")
    sys.stdout.flush()


def print_page(page: Page[Any], columns: Columns, as_json: bool, what: str) -> None:
    """Print one page of a listing."""
    if as_json:
        print_json({"items": list(page), "next": page.next})
        return
    print_table(page, columns, what)
    if page.next is not None:
        complain(f"more: add --after {safe(page.next)}")


def print_table(items: Iterable[Any], columns: Columns, what: str) -> None:
    """Print *items* as a table, or that there are none."""
    rows = [[_cell(column(item)) for column in columns.values()] for item in items]
    if not rows:
        complain(f"no {what}")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_fields(fields: Mapping[str, object]) -> None:
    """Print *fields* one a line, those without a value left out."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in fields.items():
        if value not in (None, "", ()):
            table.add_row(Text(name, style="bold"), Text(safe(_shown(value))))
    console().print(table)


def say(line: str) -> None:
    """Print a line for people on stdout."""
    console().print(Text(safe(line)), soft_wrap=True)


def complain(paragraph: str) -> None:
    """Print a note or an error for people on stderr."""
    sys.stderr.write(" ".join(map(safe, paragraph.split("\n"))) + "\n")
    sys.stderr.flush()


def console() -> Console:
    """Return where people read: as wide as their window, or as needed where output goes elsewhere."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False, markup=False)


def jsonable(value: object) -> Any:
    """Return *value* as JSON can hold it; what JSON does not know is its text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Enum):
        return jsonable(value.value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [jsonable(item) for item in cast("Sequence[object]", value)]
    if value is None or isinstance(value, str | int | bool):
        return value
    return to_jsonable_python(value, inf_nan_mode="strings", bytes_mode="base64", fallback=str)


def rfc3339(at: datetime) -> str:
    """Return *at* in UTC with microseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def brief(value: object) -> str:
    """Return *value* as one short piece of JSON for a table."""
    return shortened(json.dumps(jsonable(value), ensure_ascii=False), CELL_MAX_CHARS)


def local(at: datetime | None) -> str:
    """Return *at* on the reader's clock."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell(value: object) -> Text:
    return Text(safe(_shown(value)))


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return local(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value.value if isinstance(value, Enum) else value)
