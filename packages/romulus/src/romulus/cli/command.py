"""How every command runs: its common options, its client, and what each error means for the exit code."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from romulus.app import App, loops
from romulus.app.settings import store_url, value_of
from romulus.authoring.registry import Registry
from romulus.client import AsyncClient
from romulus.client.source import Source
from romulus.core.errors import (
    ConfigurationError,
    DefinitionError,
    EventConflict,
    IllegalTransition,
    OperationConflict,
    OperationNotFound,
    RomulusError,
    RunConflict,
    RunNotFound,
    SerializationError,
)  # fmt: skip
from romulus.core.text import InvalidText

from .output import complain

P = ParamSpec("P")
FAILED, USAGE, NOT_FOUND, CONFLICT, INTERRUPTED = 1, 2, 3, 4, 130
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (RunNotFound, NOT_FOUND),
    (RunConflict, CONFLICT),
    (EventConflict, CONFLICT),
    (IllegalTransition, CONFLICT),
    (OperationNotFound, NOT_FOUND),
    (OperationConflict, CONFLICT),
    (ConfigurationError, USAGE),
    (DefinitionError, USAGE),
    (SerializationError, USAGE),
    (InvalidText, USAGE),
    (RomulusError, FAILED),
    (ValueError, USAGE),
    (TypeError, USAGE),
)
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="URL", help="Store URL; else ROMULUS_STORE, else sqlite:///romulus.db.")
]
NamespaceOption = Annotated[str | None, typer.Option("--namespace", help="Namespace; else ROMULUS_NAMESPACE, else default.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]


class Exit(Exception):
    """Ends a command with an exit code, and a paragraph on stderr where there is something to say."""

    def __init__(self, code: int, paragraph: str = "") -> None:
        super().__init__(paragraph)
        self.code, self.paragraph = code, paragraph


@dataclass(frozen=True, slots=True)
class Cli:
    """What the common options say."""

    store: str
    namespace: str
    json: bool
    named: Named

    def client(self, app: App | None = None) -> AsyncClient:
        """Return a client of the store and namespace meant; with *app* of its own, where none are named, and with its code."""
        if app is None:
            return AsyncClient(self.store, namespace=self.namespace)
        source = app.source if self.named.store is None else Source(self.named.store)
        return AsyncClient(Code(source, app.registry, app.namespace), namespace=self.named.namespace)


@dataclass(frozen=True, slots=True)
class Named:
    """Which store and namespace the user named, where an App has its own."""

    store: str | None
    namespace: str | None


@dataclass(frozen=True, slots=True)
class Code:
    """An App's code, on the store that is meant."""

    source: Source
    registry: Registry
    namespace: str


def command(group: typer.Typer, name: str) -> Callable[[Callable[Concatenate[Cli, P], Awaitable[None]]], Callable[..., None]]:
    """Add a command to *group*: an `async def` that takes a `Cli` first; the common options are added to its own."""

    def decorate(function: Callable[Concatenate[Cli, P], Awaitable[None]]) -> Callable[..., None]:
        @wraps(function)
        def run(**options: Any) -> None:
            given, namespace, as_json = (options.pop(option) for option in ("store", "namespace", "as_json"))

            async def body() -> None:
                url, where = store_url(given), namespace or str(value_of("ROMULUS_NAMESPACE"))
                named = Named(given, namespace or os.environ.get("ROMULUS_NAMESPACE") or None)
                await function(Cli(url, where, as_json, named), **options)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

            guarded(lambda: loops.run(body()))

        _show_options(run, function)
        group.command(name)(run)
        return run

    return decorate


def guarded(body: Callable[[], None]) -> None:
    """Run *body*; turn what it raises into one paragraph on stderr and the exit code that goes with it."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    try:
        body()
    except Exit as ended:
        _leave(ended.code, ended.paragraph)
    except KeyboardInterrupt:
        _leave(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; say nothing at exit either
        raise typer.Exit(FAILED) from None
    except Exception as error:  # noqa: BLE001 - people get a sentence, never a traceback
        _leave(exit_code(error), _sentence(error))


def exit_code(error: BaseException) -> int:
    """Return the exit code that *error* stands for."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def _leave(code: int, paragraph: str) -> None:
    if paragraph:
        complain(f"romulus: {paragraph}")
    raise typer.Exit(code)


def _sentence(error: Exception) -> str:
    if os.environ.get("ROMULUS_DEBUG"):
        traceback.print_exc()
    if isinstance(error, RomulusError | OSError | ValueError | TypeError | TimeoutError):
        return str(error) or type(error).__name__
    return f"unexpected {type(error).__name__}: {error}; ROMULUS_DEBUG=1 shows where"


def _show_options(run: Callable[..., None], function: Callable[..., Any]) -> None:
    """Give *run* the signature typer reads: the command's own parameters less the first, and the common ones."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in (
            ("store", None, StoreOption), ("namespace", None, NamespaceOption), ("as_json", False, JsonOption)
        )
    ]  # fmt: skip
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + common
    run.__signature__ = inspect.Signature(parameters, return_annotation=None)  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # type: ignore[attr-defined]  # pyright: ignore[reportFunctionMemberAccess]
