"""Stores that keep journals somewhere and a copy of what they use in memory.

A backend of this kind implements `Server`, which knows nothing of what it keeps; `ReplicatedStore` does the rest.
"""

from leafward.stores.replicated.journals import NOTHING as NOTHING
from leafward.stores.replicated.journals import Journal as Journal
from leafward.stores.replicated.journals import KeepsHeads as KeepsHeads
from leafward.stores.replicated.journals import Listing as Listing
from leafward.stores.replicated.journals import Mark as Mark
from leafward.stores.replicated.journals import Outcome as Outcome
from leafward.stores.replicated.journals import Server as Server
from leafward.stores.replicated.journals import Tail as Tail
from leafward.stores.replicated.journals import Write as Write
from leafward.stores.replicated.store import ReplicatedStore as ReplicatedStore
