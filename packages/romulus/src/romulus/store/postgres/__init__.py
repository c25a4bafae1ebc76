"""The PostgreSQL store, on asyncpg."""

from .place import Place, place_of
from .store import PostgresStore

__all__ = ["Place", "PostgresStore", "place_of"]
