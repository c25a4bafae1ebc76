"""The SQLite store, on apsw."""

from .connection import Place
from .store import SQLiteStore, place_of

__all__ = ["Place", "SQLiteStore", "place_of"]
