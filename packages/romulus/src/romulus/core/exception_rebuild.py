"""Makes an exception again from what was stored of it: its own class where that can be done honestly.

Honestly: the class is found by module and name, is an exception that code may catch, takes the stored arguments, and then says
the same message. Nothing else named by stored data is ever called.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from .errors import ActivationTimeout, Dropped, RomulusError, StepFailed
from .exception_facts import TRACEBACK, quietly
from .modules import loaded, portable
from .plain import unpack
from .text import escaped

_GROUP: type[BaseException] = BaseExceptionGroup
# raised in a run these would stop the process or confuse coroutines
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
    cls: Any = quietly(lambda: _named(module, qualname), None)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)) or issubclass(cls, _NEVER):
        return None
    return cls if (portable(cls.__module__), cls.__qualname__) == (module, qualname) else None


def _named(module: str, qualname: str) -> Any:
    found: Any = loaded(module)
    return reduce(_member, qualname.split("."), found)


def _member(owner: Any, name: str) -> Any:
    return owner.__dict__[name]


def _made(cls: type[BaseException], found: dict[str, Any]) -> BaseException | None:
    state = {name: unpack(value[0]) for name, value in found.get("state", {}).items()}
    message = found.get("message", "")
    for args in _candidates(found):
        made: BaseException | None = quietly(partial(cls, *args), None)
        if made is not None and type(made) is cls and _says(made, message):
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
    cls, message = _class(found), found.get("message", "")
    own = cls if cls is not None and issubclass(cls, _GROUP) else _GROUP
    made: BaseException | None = quietly(partial(own, message, members), None)
    return made if made is not None else BaseExceptionGroup(message, members)
