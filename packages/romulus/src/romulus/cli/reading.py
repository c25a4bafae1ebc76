"""What people type, turned into values: JSON, times, attributes."""

from __future__ import annotations

import json
from datetime import datetime
from math import isinf
from typing import Any, cast

from .command import USAGE, Exit


def parsed_json(text: str | None, what: str, default: object = None) -> Any:
    """Return the value of JSON *text*, exact integers included."""
    if text is None:
        return default
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise Exit(USAGE, f"cannot read {what}: it is nested too deep") from None
    except ValueError as error:
        raise Exit(USAGE, f"cannot read {what} as JSON ({error}): {text[:60]!r}; text needs its quotes, as in '\"text\"'") from None


def parsed_object(text: str | None, what: str) -> dict[str, Any]:
    """Return the JSON object *text*."""
    value = parsed_json(text, what, {})
    if not isinstance(value, dict):
        raise Exit(USAGE, f'give {what} as a JSON object, by name, as in \'{{"order": "42"}}\'')
    return cast("dict[str, Any]", value)


def parsed_time(text: str | None, option: str) -> datetime | None:
    """Return an ISO 8601 time; without an offset it is on the reader's clock."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Exit(USAGE, f"{option} is {text!r}; give a time such as 2026-01-31T12:00:00Z") from None
    return at.astimezone() if at.tzinfo is None else at


def parsed_attributes(pairs: list[str] | None) -> dict[str, str | int | bool]:
    """Return attributes from NAME=VALUE: true, false and whole numbers as such, all else as text."""
    found: dict[str, str | int | bool] = {}
    for pair in pairs or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise Exit(USAGE, f"--attribute is {pair!r}; give NAME=VALUE")
        found[name] = _attribute(value)
    return found


def _attribute(value: str) -> str | int | bool:
    if value in ("true", "false"):
        return value == "true"
    try:
        return int(value) if value.lstrip("-").isdecimal() else value
    except ValueError:
        return value


def _finite(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        raise ValueError(f"{digits[:20]} is beyond what a float can hold")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
