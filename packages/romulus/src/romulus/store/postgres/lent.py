"""The connection that the body of a transactional step is lent: the driver's own, which notes what cannot be taken back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import asyncpg

_driver: Any = asyncpg


def _noted(name: str) -> Callable[..., Any]:
    """Return the driver's method of that name, which changes how a connection talks, or whom it calls."""
    method: Any = getattr(_driver.Connection, name)

    @wraps(method)
    def noted(self: LentConnection, *args: Any, **kwargs: Any) -> Any:
        self.altered = True
        return method(self, *args, **kwargs)

    return noted


class LentConnection(_driver.Connection):  # type: ignore[misc]
    """An asyncpg connection that is not used again by other steps once a body has altered it."""

    altered = False

    set_type_codec = _noted("set_type_codec")
    set_builtin_type_codec = _noted("set_builtin_type_codec")
    add_listener = _noted("add_listener")
    add_log_listener = _noted("add_log_listener")
    add_query_logger = _noted("add_query_logger")
    add_termination_listener = _noted("add_termination_listener")

    async def execute(self, query: str, *args: Any, **kwargs: Any) -> str:
        """Execute; note a statement that is prepared by name, which would keep its name from the next step."""
        self.altered = self.altered or "prepare" in query.lower()
        status: str = await _driver.Connection.execute(self, query, *args, **kwargs)
        return status
