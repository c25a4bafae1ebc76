"""What a code object refers to: chains of names such as `datetime.datetime.now`, resolved to the objects they mean here.

Nothing is executed and no source is needed. A chain begins at a global, a closure's variable, or a local that is assigned once from such a
chain or an import; what begins anywhere else (`self.open()`, a parameter, the result of a call) is not followed, so nothing is guessed.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, cast

MISSING: Final = object()
_SILENT = {"CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "NOT_TAKEN", "PRECALL", "RESUME"}
_KINDS = {
    "LOAD_GLOBAL": "GLOBAL", "LOAD_NAME": "NAME", "LOAD_FROM_DICT_OR_GLOBALS": "NAME",
    "LOAD_DEREF": "CELL", "LOAD_CLASSDEREF": "CELL", "LOAD_FROM_DICT_OR_DEREF": "CELL",
    "LOAD_METHOD": "METHOD", "LOAD_ATTR": "ATTR", "STORE_NAME": "STORE", "STORE_DEREF": "STORE",
}  # fmt: skip
_METHOD_FLAG = sys.version_info >= (3, 12)  # LOAD_ATTR says in its lowest bit that a call follows
_NULL_AFTER = sys.version_info >= (3, 13)  # the NULL of a call is pushed after what is called; before that, ahead of it


class Unloaded(str):
    """The dotted name of something in a module that is not imported yet."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that code names, and how."""

    value: Any
    name: str  # as written
    line: int
    called: bool
    bare: bool  # called without any argument
    owner: Any = None  # what it is an attribute of


@dataclass(slots=True)
class Scope:
    """What names mean inside one code object."""

    globals: Mapping[str, Any]
    cells: dict[str, Any] = field(default_factory=dict[str, Any])  # closure variables, by name
    aliases: dict[str, Any] = field(default_factory=dict[str, Any])  # locals assigned once, from something resolved

    def inside(self) -> Scope:
        """Return the scope of a code object nested in this one."""
        return Scope(self.globals, {**self.cells, **self.aliases})


def scope_of(fn: FunctionType) -> Scope:
    """Return the scope of a function's own code."""
    cells: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return Scope(fn.__globals__, cells)


def references(code: CodeType, scope: Scope) -> Iterator[Reference]:
    """Yield every object that *code* and the code nested in it refers to, in the order written."""
    yield from _Reader(code, scope).read()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from references(constant, scope.inside())


@dataclass(frozen=True, slots=True)
class _Op:
    """One load, store or other operation; an instruction that does two things becomes two of these."""

    kind: str
    name: Any = None
    flag: bool = False  # the lowest bit of its argument
    line: int = 0


class _Reader:
    """Reads one code object from its first operation to its last, keeping what is on top of the stack where that is known."""

    def __init__(self, code: CodeType, scope: Scope) -> None:
        self.scope = scope
        found = [each for each in dis.get_instructions(code) if each.opname not in _SILENT]
        self.ops = [op for at in range(len(found)) for op in _operations(found, at, scope)] + [_Op("END")]
        stores = Counter(op.name for op in self.ops if op.kind == "STORE")
        self.stored = set(stores)
        self.once = {name for name, times in stores.items() if times == 1} - _parameters(code)
        self.start = 0  # of the chain on top
        self.top: Any = MISSING
        self.owner: Any = None  # of what is on top, where that is an attribute
        self.module: Any = MISSING  # what the last import statement imports from
        self.name = ""

    def read(self) -> Iterator[Reference]:
        for at, op in enumerate(self.ops):
            self._step(at, op)
            if self.top is not MISSING and op.kind in _REFERS:
                called = self._is_called(at)
                yield Reference(self.top, self.name, op.line, called, called and self._is_bare(at), self.owner)

    def _step(self, at: int, op: _Op) -> None:
        match op.kind:
            case "ATTR" | "METHOD":
                self.owner, self.top, self.name = self.top, attribute(self.top, op.name), f"{self.name}.{op.name}"
            case "IMPORT_FROM":
                self.owner, self.top, self.name = self.module, attribute(self.module, op.name), op.name
            case "STORE":
                if op.name in self.once and self.top is not MISSING:
                    self.scope.aliases[op.name] = self.top
                self.top = MISSING
            case "SWAP" | "POP_TOP" if self.ops[at - 1].kind in {"IMPORT_FROM", "SWAP"}:
                return  # `import a.b as c` puts the package away before it stores
            case _:
                self.owner, self.top, self.name, self.start = None, self._root(op), str(op.name), at

    def _root(self, op: _Op) -> Any:
        match op.kind:
            case "NAME" if op.name in self.stored:
                return self.scope.aliases.get(op.name, MISSING)
            case "GLOBAL" | "NAME":
                found = self.scope.globals.get(op.name, MISSING)
                return getattr(builtins, op.name, MISSING) if found is MISSING else found
            case "LOAD":
                return self.scope.aliases.get(op.name, MISSING)
            case "CELL":
                return self.scope.aliases.get(op.name, self.scope.cells.get(op.name, MISSING))
            case "IMPORT_NAME":
                self.module = op.name
                return op.name
            case _:
                return MISSING

    def _is_called(self, at: int) -> bool:
        """Return whether the chain ends at *at* and is what a call calls."""
        last, following = self.ops[at], self.ops[at + 1].kind
        if following in {"ATTR", "METHOD"}:
            return False
        if last.kind == "METHOD" or (last.kind == "ATTR" and _METHOD_FLAG and last.flag):
            return True
        first = self.ops[self.start]
        if first.kind == "GLOBAL" and first.flag:
            return True
        return following == "PUSH_NULL" if _NULL_AFTER else self.ops[self.start - 1].kind == "PUSH_NULL"

    def _is_bare(self, at: int) -> bool:
        after = self.ops[at + 1]
        if after.kind == "PUSH_NULL":
            after = self.ops[at + 2]
        return after.kind == "CALL" and after.name == 0


_REFERS = {"ATTR", "METHOD", "IMPORT_FROM", "GLOBAL", "NAME", "LOAD", "CELL", "IMPORT_NAME"}


def _parameters(code: CodeType) -> set[str]:
    stars = sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars])


def _operations(found: list[dis.Instruction], at: int, scope: Scope) -> Iterator[_Op]:
    each = found[at]
    line = (each.positions and each.positions.lineno) or 0
    flag = bool((each.arg or 0) & 1)
    if each.opname == "IMPORT_NAME":
        yield _Op("IMPORT_NAME", _imported(each.argval, found[at - 2].argval, found[at - 1].argval, scope), line=line)
    elif each.opname.startswith(("LOAD_FAST", "STORE_FAST")):
        yield from _fast(each, line)
    else:
        yield _Op(_KINDS.get(each.opname, each.opname), each.argval, flag, line)


def _fast(each: dis.Instruction, line: int) -> Iterator[_Op]:
    """Yield the loads and stores of a local variable; an instruction may name two."""
    argval: Any = each.argval
    names = cast("tuple[str, ...]", argval) if isinstance(argval, tuple) else (str(argval),)
    first = "LOAD" if each.opname.startswith("LOAD") else "STORE"
    second = "STORE" if each.opname.endswith("STORE_FAST") else "LOAD"
    for kind, name in zip((first, second), names, strict=False):
        yield _Op(kind, name, line=line)


def _imported(name: str, level: Any, names: Any, scope: Scope) -> Any:
    """Return what an import statement puts on the stack: the module named if something is taken from it, else the top package."""
    if level:
        try:
            name = resolve_name("." * level + name, scope.globals.get("__package__") or "")
        except ImportError:
            return MISSING
    dotted = name if names else name.partition(".")[0]
    return sys.modules.get(dotted, Unloaded(dotted))


def attribute(value: Any, name: str) -> Any:
    """Return the attribute as a call through *value* would find it, or MISSING; runs no code of a user's object."""
    if isinstance(value, Unloaded):
        return Unloaded(f"{value}.{name}")
    if isinstance(value, ModuleType | type | random.Random):
        return _plainly(value, name)
    if value is MISSING:
        return MISSING
    return inspect.getattr_static(value, name, MISSING)


def _plainly(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, MISSING)
    except Exception:  # noqa: BLE001  # a lazily loading module may fail in any way; it does so again when the code runs
        return MISSING
