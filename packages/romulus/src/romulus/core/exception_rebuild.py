"""Makes an exception again from what was stored of it: its own class where that can be done honestly.

Honestly: the class is found by module and name, is an exception that code may catch, takes the stored arguments, and then says
the same message. Nothing else named by stored data is ever called.
"""

from __future__ import annotations

import importlib
from typing import Any

from .errors import ActivationTimeout, Dropped, RomulusError, StepFailed
from .exception_facts import TRACEBACK, quietly
from .plain import unpack
from .text import escaped

# raised in a run they would stop the process or confuse coroutines
_NEVER = (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, StopAsyncIteration, Dropped, ActivationTimeout)


def rebuild(found: dict[str, Any]) -> BaseException:
    """Return the exception that *found* (of `exception_facts`) describes."""
    exc = _group(found) if "members" in found else _single(found)
    for note in found.get("notes", ()):
        exc.add_note(note)
    if "cause" in found:
        exc.__cause__ = rebuild(found["cause"])
    _set(exc, TRACEBACK, found.get("traceback", ""))
    return exc


def _single(found: dict[str, Any]) -> BaseException:
    cls = _class(found)
    made = None if cls is None else _made(cls, found)
    return made if made is not None else _stand_in(found)


def _stand_in(found: dict[str, Any]) -> StepFailed:
    name = str(found.get("type", "")).rpartition(":")[2]
    return StepFailed(str(found.get("message", "")), name)


def _class(found: dict[str, Any]) -> type[BaseException] | None:
    module, _, qualname = str(found.get("type", "")).partition(":")
    cls = quietly(lambda: _named(module, qualname), None)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)) or issubclass(cls, _NEVER):
        return None
    return cls if (cls.__module__, cls.__qualname__) == (module, qualname) else None


def _named(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = vars(found)[part]
    return found


def _made(cls: type[BaseException], found: dict[str, Any]) -> BaseException | None:
    state = {name: unpack(value[0]) for name, value in found.get("state", {}).items()}
    message = found.get("message", "")
    for args in _candidates(found):
        made = quietly(lambda args=args: cls(*args), None)
        if type(made) is cls and _says(made, message):
            return _with_state(made, state)
    if issubclass(cls, RomulusError):
        return _bare(cls, found, state)
    return None


def _candidates(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    candidates: list[tuple[Any, ...]] = [unpack(found["args"][0])] if "args" in found else []
    return [*candidates, (found.get("message", ""),)]


def _bare(cls: type[BaseException], found: dict[str, Any], state: dict[str, Any]) -> BaseException | None:
    """Our own errors build their message from other arguments: make them without `__init__`."""
    made = cls.__new__(cls)
    made.args = _candidates(found)[0]
    return _with_state(made, state) if _says(made, found.get("message", "")) else None


def _says(made: BaseException, message: str) -> bool:
    return escaped(quietly(lambda: str(made), "")) == message


def _with_state(made: BaseException, state: dict[str, Any]) -> BaseException:
    for name, value in state.items():
        _set(made, name, value)
    return made


def _set(exc: BaseException, name: str, value: Any) -> None:
    quietly(lambda: setattr(exc, name, value), None)


def _group(found: dict[str, Any]) -> BaseException:
    members = [rebuild(member) for member in found["members"]]
    if found.get("cut"):
        members.append(StepFailed(f"… and {found['cut']:,} more exceptions", ""))
    if not members:
        return _stand_in(found)
    cls = _class(found)
    made = None
    if cls is not None and issubclass(cls, BaseExceptionGroup):
        made = quietly(lambda: cls(found.get("message", ""), members), None)
    return made if made is not None else BaseExceptionGroup(found.get("message", ""), members)
