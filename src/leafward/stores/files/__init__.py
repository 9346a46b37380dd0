"""`file:///dir`: a journal for each session that a person can read, and an index made from them."""

from leafward.stores.files.store import FileStore, open_files

__all__ = ["FileStore", "open_files"]
