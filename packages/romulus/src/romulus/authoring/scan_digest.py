"""The digest of workflow code: alike for code that asks for the same things, whatever its line numbers, files and hash seeds.

It only saves work: a worker with another digest replays a run before it takes it. So the values of the user's own plain globals count too,
since a changed limit changes commands as changed code does.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any

_kind_flags = 0x3FF  # of a code object: whether it is a generator, a coroutine, takes *args; above are `from __future__` and docstrings
_text_max = 10_000  # of one constant outside the code; what is longer is data


def digest_of(parts: Iterable[str]) -> str:
    """Return "<major.minor>:<16 hex digits>" over *parts* in their order."""
    hashed = blake2b(digest_size=8)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return f"{sys.version_info.major}.{sys.version_info.minor}:{hashed.hexdigest()}"


def function_part(fn: FunctionType) -> str:
    """Return what a function of the scanned set adds: its code and its defaults."""
    defaults = [constant(value) for value in fn.__defaults__ or ()]
    named = [(name, constant(value)) for name, value in sorted((fn.__kwdefaults__ or {}).items())]
    code = fn.__code__
    if fn.__doc__ is not None and code.co_consts and code.co_consts[0] == fn.__doc__:
        code = code.replace(co_consts=("documented", *code.co_consts[1:]))
    return f"def {fn.__qualname__} {code_part(code)} {defaults} {named}"


def code_part(code: CodeType) -> str:
    """Return a code object as text, without line numbers, file names and the order of sets."""
    constants = [_constant_in_code(value) for value in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _kind_flags)
    return f"{code.co_name} {counts} {code.co_code.hex()} {code.co_exceptiontable.hex()} {names} {constants}"


def declared_part(kind: str, name: str, fn: Callable[..., Any]) -> str:
    """Return what a step or child adds: its name and its parameters, nothing of its body."""
    return f"{kind} {name} {[_parameter(each) for each in inspect.signature(fn).parameters.values()]}"


def constant(value: Any) -> str:
    """Return a plain immutable value as text; of anything else its type, which is all that is alike in every process."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if value is None or value is Ellipsis or type(value) in {bool, int, float, complex, str, bytes}:
        return f"{type(value).__name__} {value!r}"[:_text_max]
    kind: Any = value.__class__
    if kind is tuple:
        return f"({', '.join(constant(each) for each in value)})"[:_text_max]
    if kind is frozenset:
        return f"{{{', '.join(sorted(constant(each) for each in value))}}}"[:_text_max]
    return f"a {kind.__qualname__}"


def _constant_in_code(value: Any) -> str:
    return code_part(value) if isinstance(value, CodeType) else constant(value)


def _parameter(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", "")
    default = "" if parameter.default is parameter.empty else constant(parameter.default)
    return f"{parameter.name} {parameter.kind.name} {named} {default}"
