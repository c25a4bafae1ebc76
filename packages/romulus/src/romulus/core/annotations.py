"""The annotations of a function, resolved when first needed: names defined later in the module are found."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from .errors import DefinitionError

_EMPTY: Any = object()


def annotations_of(fn: Callable[..., Any], where: str) -> dict[str, Any]:
    """Return *fn*'s annotations as objects, `Annotated` kept.

    Raises:
        DefinitionError: a name in them cannot be resolved; the message names *where* and the remedy.
    """
    plain = inspect.unwrap(fn)
    try:
        return get_type_hints(plain, localns=_enclosed(plain), include_extras=True)
    except Exception as error:
        raise DefinitionError(
            f"{where}: an annotation of {plain.__qualname__} cannot be resolved ({type(error).__name__}: {error}); "
            "define the type at module level and import it outside `if TYPE_CHECKING`"
        ) from error


def result_annotation(fn: Callable[..., Any], where: str) -> Any:
    """Return *fn*'s return annotation, `Any` where there is none."""
    return annotations_of(fn, where).get("return", Any)


def _enclosed(fn: Callable[..., Any]) -> dict[str, Any]:
    """Names that an enclosing function lent to *fn*."""
    code, cells = getattr(fn, "__code__", None), getattr(fn, "__closure__", None)
    if code is None or not cells:
        return {}
    held = {name: _content(cell) for name, cell in zip(code.co_freevars, cells, strict=True)}
    return {name: content for name, content in held.items() if content is not _EMPTY}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY
