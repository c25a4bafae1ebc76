"""Whether a step's body can suspend, told from its bytecode: one that cannot needs no task of its own."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import Any

# What `await`, `async for`, `async with` and `yield` compile to on 3.11 to 3.14; a coroutine's prologue has none of them.
SUSPENDING = frozenset(dis.opmap[name] for name in ("GET_AWAITABLE", "SEND", "YIELD_VALUE", "GET_ANEXT") if name in dis.opmap)


def suspends(fn: Callable[..., Any]) -> bool:
    """Return False only where *fn* is an `async def` function without a place to suspend; True when unsure."""
    code = getattr(fn, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return not SUSPENDING or any(opcode in SUSPENDING for opcode in code.co_code[::2])
