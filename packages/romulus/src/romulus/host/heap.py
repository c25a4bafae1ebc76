"""The C library's heap: what is freed there stays this process's until it is asked to give it back."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def trim() -> bool:
    """Give free pages back to the system; False: there were none, or the C library has no `malloc_trim` (it is glibc's)."""
    malloc_trim = _malloc_trim()
    return malloc_trim is not None and malloc_trim(0) == 1


@cache
def _malloc_trim() -> Any:
    try:
        found = ctypes.CDLL(None).malloc_trim  # lets go of the interpreter while it works
    except (OSError, TypeError, AttributeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    return found
