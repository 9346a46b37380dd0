"""`s3://bucket/folder`: a user has one object with all that is kept, replaced if nobody else did before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import obstore
from msgspec import json
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from leafward.core.errors import LeaseLost, OutcomeUnknown, StoreError
from leafward.core.ids import Owner, Scope
from leafward.stores.contracts import Durability
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, Slot
from leafward.stores.leases.document_leases import DocumentLeases
from leafward.stores.replicated.journals import NOTHING, Journal, Listing, Mark, Outcome, Server, Tail, Write
from leafward.stores.replicated.store import ReplicatedStore
from leafward.stores.states.document import DocumentStates

Data = dict[str, Any]


def journal_in(data: Data, journal: Journal) -> Data:
    key = json.encode([journal.owner.agent_id, journal.session_id]).decode()
    return data["journals"].setdefault(key, {"mark": NOTHING, "listed": None, "batches": []})


class Bucket(DocumentLeases, Server):
    """Journals, leases and states in a bucket."""

    def __init__(self, objects: Any, url: str) -> None:
        self._objects, self._url = objects, url

    async def _read(self, user_id: str | None) -> tuple[str, bytes, str | None]:
        """Return where a user's object is, what is in it, and which version of it that is."""
        path = "anonymous.json" if user_id is None else f"{sha256(user_id.encode()).hexdigest()}.json"
        try:
            found = await obstore.get_async(self._objects, path)
            return path, bytes(await found.bytes_async()), found.meta["e_tag"]
        except (BaseError, FileNotFoundError) as error:
            if not isinstance(error, FileNotFoundError) or "NoSuchBucket" in str(error):
                raise StoreError(f"{self._url} could not be read") from error
            return path, b'{"journals":{},"leases":{}}', None

    async def read(self, user_id: str | None) -> Data:
        return json.decode((await self._read(user_id))[1])

    async def change(self, user_id: str | None, change: Callable[[Data], Any], fence: Fence | None = None) -> Any:
        """Change what is stored of a user in one step; a change that came too late is made anew."""
        while True:
            path, stored, tag = await self._read(user_id)
            data = json.decode(stored)
            if fence and data["leases"].get(fence.slot.session_id, {}).get("token") != fence.token:
                raise LeaseLost(fence.slot.session_id)
            answer = change(data)
            data["journals"] = {key: one for key, one in data["journals"].items() if tuple(one["mark"]) != NOTHING}
            try:
                if (changed := json.encode(data)) != stored:
                    await obstore.put_async(self._objects, path, changed, mode={"e_tag": tag} if tag else "create")
                return answer
            except BaseError as error:
                if not isinstance(error, AlreadyExistsError | PreconditionError):
                    raise OutcomeUnknown(self._url, unanswered=True) from error

    async def fetch(self, wanted: Sequence[tuple[Journal, Mark]]) -> list[Tail]:
        data, tails = await self.read(wanted[0][0].owner.user_id), []
        for journal, known in wanted:
            found = journal_in(data, journal)
            mark = Mark(*found["mark"])
            foreign = known.length > 0 and (mark.incarnation != known.incarnation or mark.length < known.length)
            tails.append(Tail(mark, [one.encode() for one in found["batches"][known.length :] if not foreign], foreign))
        return tails

    async def marks(self, journals: Sequence[Journal]) -> list[Mark]:
        return [tail.mark for tail in await self.fetch([(journal, NOTHING) for journal in journals])]

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        def change(data: Data) -> Outcome:
            if any(Mark(*journal_in(data, one.journal)["mark"]) != one.expected for one in writes):
                return Outcome.REFUSED
            for one in (one for one in writes if one.mark != one.expected):
                found = journal_in(data, one.journal)
                kept = [] if one.anew else found["batches"]
                listed = (one.listing.updated_at, one.listing.info.decode()) if one.listing else found["listed"]
                found |= {"mark": one.mark, "listed": listed, "batches": [*kept, one.batch.decode()]}
            return Outcome.DONE

        return await self.change(writes[0].journal.owner.user_id, change, fence)

    async def sessions(self, owner: Owner, limit: int | None, after: Listing | None) -> list[Listing]:
        journals = (await self.read(owner.user_id))["journals"].items()
        rows = [(*json.decode(key), *one["listed"]) for key, one in journals if one["listed"]]
        found = [Listing(at, session, info.encode()) for agent, session, at, info in rows if agent == owner.agent_id]
        return sorted((one for one in found if after is None or one[:2] < after[:2]), reverse=True)[:limit]

    async def is_shared(self, scope: Scope) -> bool:
        names = map(json.decode, (await self.read(scope.owner.user_id))["journals"])
        return any(session == scope.session_id and agent != scope.owner.agent_id for agent, session in names)

    async def read_lease(self, slot: Slot) -> Data:
        return (await self.read(slot.user_id))["leases"].get(slot.session_id, {})

    async def change_lease(self, slot: Slot, change: Callable[[Data], Any]) -> Any:
        name = slot.session_id
        return await self.change(slot.user_id, lambda data: change(data["leases"].setdefault(name, {})))

    async def scrub(self) -> list[str]:
        return ["earlier versions of the user's object, where the bucket keeps them"]

    def durability(self) -> Durability:
        return "power"

    async def close(self) -> None:
        """Nothing is held."""


async def open_bucket(url: str, *, client: Any = None, max_message_bytes: int = 8 << 20) -> ReplicatedStore:
    """Open a bucket; where it is and who asks is said by `AWS_…` variables, or by `client`, a store of obstore's."""
    # The driver does not repeat a put by itself: it would be refused because of itself.
    bucket = Bucket(client or obstore.store.from_url(url, retry_config={"max_retries": 0}), url)
    guard = Guard(f"the store {url}")
    return ReplicatedStore(bucket, DocumentStates(guard, bucket.read, bucket.change), guard, max_message_bytes)
