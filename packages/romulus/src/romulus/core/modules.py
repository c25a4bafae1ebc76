"""Names of modules that hold for every process: a script run as `__main__` is what others import by its name."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def portable(module: str) -> str:
    """Return the name by which other processes import *module*."""
    return main_name() or module if module == "__main__" else module


def loaded(module: str) -> ModuleType:
    """Return the module of that portable name; the running script is never imported a second time.

    Raises:
        Exception: whatever importing it raises.
    """
    return import_module("__main__" if module == main_name() else module)


def main_name() -> str:
    """Return what the running script is imported as elsewhere, "" where it cannot be told."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = str(getattr(main, "__file__", None) or "").replace("\\", "/").rpartition("/")[2]
    return file.removesuffix(".py") if file.endswith(".py") else ""  # an installed command is nobody's module
