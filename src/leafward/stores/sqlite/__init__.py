"""`sqlite:///path`: sessions in one file, the embedded default."""

from leafward.stores.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
