"""Where code runs: inside which instance, if in any."""

from __future__ import annotations

from romulus.core.errors import NotInRun
from romulus.core.instance import Instance, current
from romulus.core.loop import Finalised, running


def here() -> Instance | None:
    """Return the instance whose workflow code calls this, None elsewhere.

    Code of a dropped instance that is being closed is not elsewhere: a step called there must not run as a plain function.
    """
    instance = current()
    if instance is None and running() is not None:
        raise Finalised
    return instance


def dropped() -> bool:
    """Return whether code of a dropped instance calls this."""
    return running() is not None and current() is None


def workflow_code(what: str, elsewhere: str) -> Instance:
    """Return the instance whose workflow code calls this; *elsewhere* says what to write in other places.

    Raises:
        NotInRun: called elsewhere.
    """
    instance = here()
    if instance is None:
        raise NotInRun(f"{what} is for workflow code; {elsewhere}")
    return instance
