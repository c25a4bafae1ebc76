"""Development mode for an App: finds out how the second interpreter imports it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from multiprocessing import spawn
from typing import Any

from romulus.core.errors import ConfigurationError
from romulus.worker.shadow import Shadow, Target

from .settings import value_of
from .supervisor import locate

log = logging.getLogger("romulus.worker")
SETTLE_MAX = 10_000_000  # µs that `app.run` waits for the comparison of what it did
_PROGRAMS = {"__main__", "__mp_main__"}
_NEEDED = {"sys_argv", "dir", "init_main_from_name", "init_main_from_path"}


def shadow(app: object, digests: Mapping[tuple[str, str], str]) -> Shadow | None:
    """Return the shadow of *app*'s runs if development mode is on and another process can import the App."""
    if not value_of("ROMULUS_DEVELOPMENT"):
        return None
    try:
        module, attribute = locate(app)
    except ConfigurationError:
        log.warning("development mode: the second interpreter imports the App, so put it at the top level of a module; nothing is compared")
        return None
    return Shadow(Target(module, attribute, _program() if module in _PROGRAMS else None), digests)


def _program() -> dict[str, Any]:
    """Return how another process runs the program's module without being the program, as multiprocessing does it."""
    return {name: value for name, value in spawn.get_preparation_data("romulus-shadow").items() if name in _NEEDED}
