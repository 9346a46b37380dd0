"""A lease on a session and the handle that it fences, in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leafward.sessions.session import Session
    from leafward.stores.leases.acquisition import Acquisition


class SessionLease:
    """A lease about to be acquired: entered, it gives the session's leased handle, and is released at the end."""

    def __init__(self, session: Session, acquiring: Acquisition) -> None:
        self._session = session
        self._acquiring = acquiring

    async def __aenter__(self) -> Session:
        return self._session.with_lease(await self._acquiring.__aenter__())

    async def __aexit__(self, *_: object) -> None:
        await self._acquiring.__aexit__()
