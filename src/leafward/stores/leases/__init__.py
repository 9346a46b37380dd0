"""Leases: one holder at a time for a session of a user, first come first served, across processes."""

from __future__ import annotations

from leafward.stores.leases.contracts import LONGEST_TEXT as LONGEST_TEXT
from leafward.stores.leases.contracts import LOST as LOST
from leafward.stores.leases.contracts import MOST_WAITING as MOST_WAITING
from leafward.stores.leases.contracts import Fence as Fence
from leafward.stores.leases.contracts import Holder as Holder
from leafward.stores.leases.contracts import Leases as Leases
from leafward.stores.leases.contracts import LeaseTable as LeaseTable
from leafward.stores.leases.contracts import Renewed as Renewed
from leafward.stores.leases.contracts import SentText as SentText
from leafward.stores.leases.contracts import Slot as Slot
from leafward.stores.leases.contracts import ticket_ttl as ticket_ttl
