"""Classes of values, for decisions and for messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

type_of: Callable[[Any], type[Any]] = type  # as type checkers should read it: the class of anything


def type_name(cls: type[Any]) -> str:
    """Return *cls* as an error names it."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
