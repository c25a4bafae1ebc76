"""Finds the App that MODULE:APP names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from romulus.app import App

from .command import USAGE, Exit


def load_app(target: str) -> App:
    """Import MODULE with the working directory on the path, as Python would there, and return its App.

    Raises:
        Exit: 2, with one clear reason.
    """
    name, colon, attribute = target.partition(":")
    if not colon or not name or not attribute:
        raise Exit(USAGE, f"{target!r} does not name an App; write MODULE:APP, as in orders:app")
    module = _imported(name)
    app = getattr(module, attribute, None)
    if app is None:
        raise Exit(USAGE, f"module {name!r} has no {attribute!r}{_apps_of(module)}")
    if not isinstance(app, App):
        raise Exit(USAGE, f"{target!r} is a {type(app).__name__}, not a romulus.App{_apps_of(module)}")
    return app


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            hint = f"; did you mean {name.removesuffix('.py')}:…?" if name.endswith(".py") else ""
            raise Exit(USAGE, f"there is no module {error.name!r} in {here} or on the Python path{hint}") from None
        raise Exit(USAGE, f"module {name!r} cannot be imported: {error}{_place(error)}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        raise Exit(USAGE, f"module {name!r} cannot be imported: {type(error).__name__}: {error}{_place(error)}") from None


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _apps_of(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"; it has the App {', '.join(sorted(names))}" if names else "; put `app = romulus.App(workflows=[…])` at its top level"
